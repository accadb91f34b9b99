import { Code, Reason, ShimError } from '../../core/errors/index.ts';

/** The error for content of a file that the kernel does not document, with its beginning. */
export function unexpectedContent(file: string, found: string): ShimError {
  const start = found.slice(0, 80);
  const message = `${file}: unexpected content ${JSON.stringify(start)}`;
  return new ShimError(Code.INTERNAL, Reason.CGROUP_UNAVAILABLE, message, { file, found: start });
}
