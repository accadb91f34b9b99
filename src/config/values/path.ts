import { posix } from 'node:path';
import { type Refuse, fromText } from './from-text.ts';

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
export const readAbsolutePath = (text: string): string | undefined =>
  text.startsWith('/') && !text.includes('\0') ? withoutTrailingSlash(posix.normalize(text)) : undefined;

/** A socket address: `unix:///path`, `unix:/path` or an absolute path. Reads as the path. */
export const socketPath = fromText(readSocketPath);

/** A socket address as in {@link socketPath}, or an empty string, which disables the socket. */
export const optionalSocketPath = fromText((text, refuse) => (text === '' ? '' : readSocketPath(text, refuse)));
export const optionalAddressForm = `${addressForm}; empty for none`;

/** Returns the path of a socket address. Refuses an invalid address and a path that is too long for a socket. */
export function readSocketPath(text: string, refuse: Refuse): string {
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
