import type { CommandResult } from './host.ts';

/** The result of an installation or removal, derived from the exit code of resizectl. */
export type Outcome =
  | { readonly kind: 'done' }
  /** Nothing was changed: the node does not meet the requirements, or needs a manual change. */
  | { readonly kind: 'refused'; readonly why: string }
  /** A step failed. resizectl has rolled back, or reports what it could not roll back. */
  | { readonly kind: 'failed'; readonly why: string }
  /** The node has left the cluster: nobody can tell whether it works, and no other node has to wait for it. */
  | { readonly kind: 'gone'; readonly why: string };

const REFUSED = 2;
/** Exit codes of systemd for a program that could not be started (systemd.exec(5)), because of another C library or noexec. */
const NOT_STARTED = [127, 203];

export function outcomeOf({ code, lines }: CommandResult): Outcome {
  if (code === 0) return { kind: 'done' };
  const output = lines.filter((line) => line.trim() !== '');
  const why =
    output.filter((line) => /^(?:failed: |NOT rolled back: |resizectl: )/.test(line)).join('; ') || output.at(-1);
  if (NOT_STARTED.includes(code)) {
    const cause = why ?? `exit code ${code}`;
    return { kind: 'refused', why: `the image's Node does not run on this host: ${cause}${remedyFor(cause)}` };
  }
  return { kind: code === REFUSED ? 'refused' : 'failed', why: why ?? `resizectl ended with exit code ${code}` };
}

/** Says what to do about a library that the dynamic loader has not found. Node links to one that minimal systems lack: libatomic. */
function remedyFor(cause: string): string {
  const [, library] = /error while loading shared libraries: (\S+): /.exec(cause) ?? [];
  if (library === undefined) return '';
  const packages = library.startsWith('libatomic')
    ? ' (libatomic1 on Debian and Ubuntu, libatomic on Fedora and RHEL)'
    : '';
  return `; install the package with ${library} on this host${packages}`;
}

/** Whether a dry run has listed any changes. */
export const hasChanges = ({ lines }: CommandResult): boolean => lines.some((line) => line.startsWith('would: '));
