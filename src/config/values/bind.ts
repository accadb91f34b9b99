import { isIPv4 } from 'node:net';
import { type Refuse, fromText } from './from-text.ts';
import { readSocketPath } from './path.ts';

/** An address that serves without authentication, and therefore only this machine. */
export type Bind =
  | { readonly kind: 'none' }
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number }
  | { readonly kind: 'unix'; readonly path: string };

/** The form of a bind address, for errors and documentation. */
export const bindForm =
  'a loopback address with a port (127.0.0.1:9467, [::1]:9467, localhost:9467), a unix:// address, or empty for none';

/** A loopback address, the path of a socket, or nothing. Port 0 selects any free port. */
export const bind = fromText(readBind);

function readBind(text: string, refuse: Refuse): Bind {
  if (text === '') return { kind: 'none' };
  if (text.startsWith('/') || text.startsWith('unix:')) {
    return { kind: 'unix', path: readSocketPath(text, refuse) };
  }
  const [, bracketed, plain = '', digits] = /^(?:\[([0-9A-Fa-f:.]+)\]|([^:[\]]*)):(\d{1,5})$/.exec(text) ?? [];
  const port = Number(digits);
  if (digits === undefined || port > 65_535) return refuse(`must be ${bindForm}`);
  const host = loopback(bracketed ?? plain);
  if (host !== undefined) return { kind: 'tcp', host, port };
  return refuse(`is not a loopback address, and access is not authenticated; must be ${bindForm}`);
}

/** Returns the IP address of a loopback host. Does not resolve `localhost`: it always means this machine (RFC 6761 section 6.3). */
function loopback(host: string): string | undefined {
  if (host === 'localhost') return '127.0.0.1';
  return host === '::1' || (isIPv4(host) && host.startsWith('127.')) ? host : undefined;
}
