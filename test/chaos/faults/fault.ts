import type { Stage } from '../stage.ts';
import type { Random } from '../random.ts';

/** A fault of the node, which begins and ends while clients call. */
export interface Fault {
  readonly name: string;
  /**
   * Which calls may fail while it lasts: `resizes`, since the shim cannot apply them; `all`, since containerd itself is
   * gone, or no connection can be opened.
   */
  readonly fails: 'nothing' | 'resizes' | 'all';
  /**
   * Whether kubelet's updates are forwarded unchanged while it lasts, because the shim cannot read the pod (fail open).
   * Their order is then kubelet's: the clients only make those that need none, which lower the limits of a container.
   */
  readonly failsOpen?: true;
  /** How the test detects the fault: text in an error of at least one call, or `run`, which rejects if none. */
  readonly shows: RegExp | 'run';
  /** Called before the clients start. */
  readonly prepare?: (stage: Stage) => Promise<void>;
  /** Causes the fault, waits for calls during it, ends it. Rejects if it did not occur, as `shows` requires. */
  readonly run: (stage: Stage, random: Random) => Promise<void>;
}
