import { posix } from 'node:path';
import * as z from 'zod';

/** sun_path of unix(7) is 108 bytes, with the closing zero. */
const longestSocketPath = 107;

/** What paths and addresses look like, for errors and documentation. */
export const pathForm = 'an absolute path';
export const addressForm = 'unix:// and an absolute path (unix:///run/name.sock), or the path alone';

/** An absolute path, normalised (no `..`, no double or closing slash). */
export const absolutePath = z.string().transform((text, context) => {
  if (text.startsWith('/') && !text.includes('\0')) return withoutClosingSlash(posix.normalize(text));
  context.addIssue({ code: 'custom', message: `must be ${pathForm}` });
  return z.NEVER;
});

/** `unix:///path`, `unix:/path` or a bare absolute path; the output is the path. */
export const socketPath = z.string().transform(readSocketPath);

/** The same, or an empty text, which turns the socket off. */
export const optionalSocketPath = z
  .string()
  .transform((text, context) => (text === '' ? '' : readSocketPath(text, context)));
export const optionalAddressForm = `${addressForm}; empty for none`;

function readSocketPath(text: string, context: z.core.$RefinementCtx<string>): string {
  const complain = (message: string): never => {
    context.addIssue({ code: 'custom', message });
    return z.NEVER;
  };
  const path = text.replace(/^unix:(?:\/\/)?/, '');
  if (!path.startsWith('/') || path.endsWith('/') || path.includes('\0')) {
    return complain(`must be ${addressForm}`);
  }
  const bytes = Buffer.byteLength(posix.normalize(path));
  if (bytes > longestSocketPath)
    return complain(`has ${bytes} bytes; a socket's path may have at most ${longestSocketPath}`);
  return posix.normalize(path);
}

const withoutClosingSlash = (path: string): string =>
  path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path;
