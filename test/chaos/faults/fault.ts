import type { Stage } from '../stage.ts';
import type { Random } from '../random.ts';

/** A fault of the node, which begins and ends while clients call. */
export interface Fault {
  readonly name: string;
  /**
   * Which calls may fail while it lasts: `resizes`, since the shim cannot apply them; `all`, since containerd itself is gone, or no
   * connection can be opened.
   */
  readonly fails: 'nothing' | 'resizes' | 'all';
  /**
   * Whether kubelet's updates are forwarded unchanged while it lasts, because the shim cannot read the pod (fail open). Their order is then
   * kubelet's: the clients make none.
   */
  readonly failsOpen?: true;
  /** What an error of at least one call has to say: without it, the fault has not come about. */
  readonly shows?: RegExp;
  /** Called before the clients start. */
  readonly prepare?: (stage: Stage) => Promise<void>;
  /** Brings the fault about, waits for calls during it, and ends it. */
  readonly run: (stage: Stage, random: Random) => Promise<void>;
}
