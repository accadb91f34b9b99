import type { Ended } from './host.ts';

/** What has come of an installation, or of taking it off: resizectl's exit code in words. */
export type Outcome =
  | { readonly kind: 'done' }
  /** Nothing was touched: this node is not fit, or a person has to change something on it. */
  | { readonly kind: 'refused'; readonly why: string }
  /** Something has failed; resizectl has put everything back, or says what it could not. */
  | { readonly kind: 'failed'; readonly why: string };

const REFUSED = 2;
/** Exit codes of systemd for a program that could not be started (systemd.exec(5)): the C library is another one, or noexec. */
const NOT_STARTED = [127, 203];

export function outcomeOf({ code, lines }: Ended): Outcome {
  if (code === 0) return { kind: 'done' };
  const said = lines.filter((line) => line.trim() !== '');
  const why = said.filter((line) => /^(?:failed: |NOT undone: |resizectl: )/.test(line)).join('; ') || said.at(-1);
  if (NOT_STARTED.includes(code))
    return { kind: 'refused', why: `the image's Node does not run on this host: ${why ?? `exit code ${code}`}` };
  return { kind: code === REFUSED ? 'refused' : 'failed', why: why ?? `resizectl ended with exit code ${code}` };
}

/** Of a dry run: whether it comes to anything. */
export const isAnythingToDo = ({ lines }: Ended): boolean => lines.some((line) => line.startsWith('would: '));
