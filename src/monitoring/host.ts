import { isIPv4 } from 'node:net';

/**
 * Whether a request's Host header names this machine by a loopback address, or is not there (no browser leaves it out). A page
 * from elsewhere whose name was made to lead to 127.0.0.1 (DNS rebinding) has its own name there: it is not to read what is here.
 */
export function isLoopbackHost(header: string | undefined): boolean {
  if (header === undefined) return true;
  const host = header.replace(/:\d{1,5}$/, '').toLowerCase();
  return host === 'localhost' || host === '[::1]' || (isIPv4(host) && host.startsWith('127.'));
}
