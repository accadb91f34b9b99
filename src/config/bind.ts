import { isIPv4 } from 'node:net';
import { type Refuse, fromText } from './from-text.ts';
import { readSocketPath } from './path.ts';

/** Where something is served that nobody has to prove who he is for: to this machine alone. */
export type Bind =
  | { readonly kind: 'none' }
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number }
  | { readonly kind: 'unix'; readonly path: string };

/** What such an address looks like, for errors and documentation. */
export const bindForm =
  'a loopback address with a port (127.0.0.1:9467, [::1]:9467, localhost:9467), or unix:// and an absolute path; empty for none';

/** A loopback address, the path of a socket, or nothing. Port 0 is any that is free. */
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
  return refuse(`is not this machine alone: whoever gets there may read it; must be ${bindForm}`);
}

/** The name is not looked up: it means the machine itself, whatever a resolver says (RFC 6761 section 6.3). */
function loopback(host: string): string | undefined {
  if (host === 'localhost') return '127.0.0.1';
  return host === '::1' || (isIPv4(host) && host.startsWith('127.')) ? host : undefined;
}
