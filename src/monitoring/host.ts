import { isIPv4 } from 'node:net';

/**
 * Whether the Host header is a loopback address, or missing (browsers always send it). Protects against DNS rebinding: a page of
 * another site whose name resolves to 127.0.0.1 sends its own name.
 */
export function isLoopbackHost(header: string | undefined): boolean {
  if (header === undefined) return true;
  const host = header.replace(/:\d{1,5}$/, '').toLowerCase();
  return host === 'localhost' || host === '[::1]' || (isIPv4(host) && host.startsWith('127.'));
}
