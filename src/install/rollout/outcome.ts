import { Exit } from '../../core/errors/index.ts';
import type { CommandResult } from './host.ts';

/** The result of an installation or removal, derived from the exit code of resizectl. */
export type Outcome =
  /** `left`: what could not be removed, and why. */
  | { readonly kind: 'done'; readonly left?: string }
  /** Nothing was changed: the node does not meet the requirements, or needs a manual change. `isBusy`: another installation runs there. */
  | { readonly kind: 'refused'; readonly why: string; readonly isBusy?: true }
  /** A step failed. resizectl has rolled back, or reports what it could not roll back. */
  | { readonly kind: 'failed'; readonly why: string }
  /** The node has left the cluster: nobody can tell whether it works, and no other node has to wait for it. */
  | { readonly kind: 'gone'; readonly why: string };

/** What resizectl, or rm after it, says of a file that is still there. */
const LEFT = /^(?:not cleaned up after |(?:\/bin\/)?rm: )/;
/** Exit codes of systemd for a program that could not be started (systemd.exec(5)), because of another C library or noexec. */
const NOT_STARTED = [127, 203];
/** EXIT_EXEC of systemd. */
const NOT_EXECUTED = 203;
const NO_EXECUTION =
  '; check that the file system of /var/lib/cri-resize-shim-installer is not mounted noexec, and that SELinux does not deny it (ausearch -m avc -ts recent)';

/** Returns the outcome of an installation or removal, by the exit code and the lines of resizectl. */
export function outcomeOf({ code, lines }: CommandResult): Outcome {
  if (code === Exit.done) {
    const left = lines.filter((line) => LEFT.test(line)).join('; ');
    return { kind: 'done', ...(left !== '' && { left }) };
  }
  const output = lines.filter((line) => line.trim() !== '');
  const why =
    output.filter((line) => /^(?:failed: |NOT rolled back: |left in place: |resizectl: )/.test(line)).join('; ') ||
    output.at(-1);
  if (NOT_STARTED.includes(code)) {
    const cause = why ?? `exit code ${code}`;
    return { kind: 'refused', why: `the image's Node does not run on this host: ${cause}${remedyFor(code, cause)}` };
  }
  if (code === Exit.busy) return { kind: 'refused', why: why ?? 'another installation runs', isBusy: true };
  return { kind: code === Exit.usage ? 'refused' : 'failed', why: why ?? `resizectl ended with exit code ${code}` };
}

/**
 * Says what to do about a program that may not be executed, or a library that the dynamic loader has not found. Node links to one that
 * minimal systems lack: libatomic.
 */
function remedyFor(code: number, cause: string): string {
  const [, library] = /error while loading shared libraries: (\S+): /.exec(cause) ?? [];
  if (library === undefined) return code === NOT_EXECUTED ? NO_EXECUTION : '';
  const packages = library.startsWith('libatomic')
    ? ' (libatomic1 on Debian and Ubuntu, libatomic on Fedora and RHEL)'
    : '';
  return `; install the package with ${library} on this host${packages}`;
}

/** Whether a dry run has listed any changes. */
export const hasChanges = ({ lines }: CommandResult): boolean => lines.some((line) => line.startsWith('would: '));
