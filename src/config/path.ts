import { posix } from 'node:path';
import { type Refuse, fromText } from './from-text.ts';

/** sun_path of unix(7) is 108 bytes, with the closing zero. */
const longestSocketPath = 107;

/** What paths and addresses look like, for errors and documentation. */
export const pathForm = 'an absolute path';
export const addressForm = 'unix:// and an absolute path (unix:///run/name.sock), or the path alone';

/** An absolute path, normalised (no `..`, no double or closing slash). */
export const absolutePath = fromText((text, refuse) => readAbsolutePath(text) ?? refuse(`must be ${pathForm}`));

/** The same of a text; undefined when it is none. */
export const readAbsolutePath = (text: string): string | undefined =>
  text.startsWith('/') && !text.includes('\0') ? withoutClosingSlash(posix.normalize(text)) : undefined;

/** `unix:///path`, `unix:/path` or a bare absolute path; the output is the path. */
export const socketPath = fromText(readSocketPath);

/** The same, or an empty text, which turns the socket off. */
export const optionalSocketPath = fromText((text, refuse) => (text === '' ? '' : readSocketPath(text, refuse)));
export const optionalAddressForm = `${addressForm}; empty for none`;

export function readSocketPath(text: string, refuse: Refuse): string {
  const path = text.replace(/^unix:(?:\/\/)?/, '');
  if (!path.startsWith('/') || path.endsWith('/') || path.includes('\0')) {
    return refuse(`must be ${addressForm}`);
  }
  const normalised = posix.normalize(path);
  const bytes = Buffer.byteLength(normalised);
  if (bytes > longestSocketPath)
    return refuse(`has ${bytes} bytes; a socket's path may have at most ${longestSocketPath}`);
  return normalised;
}

const withoutClosingSlash = (path: string): string =>
  path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path;
