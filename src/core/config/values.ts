import { isIPv4 } from 'node:net';
import { posix } from 'node:path';
import * as z from 'zod/mini';

/** Reports an invalid value. A reader returns the result in place of a value. */
type Refuse = (message: string) => never;

/** A setting that is written as a string and read as another type. */
export const fromText = <Value>(read: (text: string, refuse: Refuse) => Value) =>
  z.pipe(
    z.string(),
    z.transform((text: string, context) => {
      const refuse = (message: string): never => {
        context.issues.push({ code: 'custom', message, input: text });
        return z.NEVER;
      };
      return read(text, refuse);
    }),
  );

/** sun_path of unix(7) is 108 bytes, including the terminating null byte. */
const longestSocketPath = 107;

/** The forms of paths and addresses, for errors and documentation. */
export const pathForm = 'an absolute path';
export const addressForm = 'a unix:// address (unix:///run/name.sock) or an absolute path';

/** An absolute path. Normalised: no `..`, no double or trailing slash. */
export const absolutePath = fromText((text, refuse) => readAbsolutePath(text) ?? refuse(`must be ${pathForm}`));

export const optionalPathForm = `${pathForm}, or empty for none`;

/** An absolute path as in {@link absolutePath}, or an empty string for none. */
export const optionalPath = fromText((text, refuse) =>
  text === '' ? '' : (readAbsolutePath(text) ?? refuse(`must be ${optionalPathForm}`)),
);

/** Returns the normalised path; undefined if the text is not an absolute path. */
const readAbsolutePath = (text: string): string | undefined =>
  text.startsWith('/') && !text.includes('\0') ? withoutTrailingSlash(posix.normalize(text)) : undefined;

/** A socket address: `unix:///path`, `unix:/path` or an absolute path. Reads as the path. */
export const socketPath = fromText(readSocketPath);

/** A socket address as in {@link socketPath}, or an empty string, which disables the socket. */
export const optionalSocketPath = fromText((text, refuse) => (text === '' ? '' : readSocketPath(text, refuse)));
export const optionalAddressForm = `${addressForm}; empty for none`;

/** Returns the path of a socket address. Refuses an invalid address and a path that is too long for a socket. */
function readSocketPath(text: string, refuse: Refuse): string {
  const path = text.replace(/^unix:(?:\/\/)?/, '');
  if (!path.startsWith('/') || path.endsWith('/') || path.includes('\0')) {
    return refuse(`must be ${addressForm}`);
  }
  const normalised = posix.normalize(path);
  const bytes = Buffer.byteLength(normalised);
  if (bytes > longestSocketPath)
    return refuse(`is ${bytes} bytes long; a socket path has at most ${longestSocketPath} bytes`);
  return normalised;
}

const withoutTrailingSlash = (path: string): string =>
  path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path;

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

/** Returns a loopback host's IP address. Never resolves `localhost`: it is this machine (RFC 6761 section 6.3). */
function loopback(host: string): string | undefined {
  if (host === 'localhost') return '127.0.0.1';
  return host === '::1' || (isIPv4(host) && host.startsWith('127.')) ? host : undefined;
}

/** Used instead of a file by a shim that runs as a pod. */
const inCluster = 'in-cluster';
export const kubeconfigForm = `${pathForm}, ${inCluster} to use the service account of the pod, or empty for none`;

/** An absolute path, `in-cluster` or an empty string. */
export const kubeconfig = fromText((text, refuse) =>
  text === '' || text === inCluster ? text : (readAbsolutePath(text) ?? refuse(`must be ${kubeconfigForm}`)),
);

/** Names of nodes (RFC 1123). The name becomes part of a field selector, so other characters are not safe. */
export const nodeNameForm = 'a node name: lower-case letters, digits, "-" and "."';
export const nodeNamePattern = /^[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?$/;
export const nodeName = fromText((text, refuse) =>
  text === '' || nodeNamePattern.test(text) ? text : refuse(`must be ${nodeNameForm}`),
);

/** The form of a file mode, for errors and documentation. A string, because YAML reads 0600 as the number 600. */
export const modeForm = 'an octal mode as a string, such as "0600" or "0660"';

export const modePattern = /^0?[0-7]{3}$/;

/** Permission bits in octal. Reads as a number. */
export const mode = fromText((text, refuse) =>
  modePattern.test(text) ? Number.parseInt(text, 8) : refuse(`must be ${modeForm}`),
);

export const optionalPidForm = 'a process ID, such as 1, or empty for none';

/** A process ID; undefined for none. At most 2^22, the kernel's PID_MAX_LIMIT. YAML reads it as a number. */
export const optionalPid = z.pipe(
  z.pipe(
    z.union([z.string(), z.number()]),
    z.transform((written: string | number) => String(written)),
  ),
  fromText((text, refuse): number | undefined => {
    if (text === '') return undefined;
    const pid = /^[1-9]\d{0,6}$/.test(text) ? Number(text) : Number.NaN;
    return pid <= 2 ** 22 ? pid : refuse(`must be ${optionalPidForm}`);
  }),
);
