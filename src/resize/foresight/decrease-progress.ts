import type { Reason } from '../../core/errors/index.ts';

/** The state of one admitted set of decreases. */
export interface Progress {
  readonly admitted: string;
  /** When the shim first saw it: by the clock for ages, and in the system's time for users. */
  readonly since: number;
  readonly seenAt: number;
  reclaimed: number;
  /** Number of attempts, successful or not. */
  times: number;
  /** Earliest time of the next attempt. */
  notBefore: number;
  isStuck: boolean;
  /** Whether a hold was interrupted: it goes on, before usage has climbed back. */
  isInterrupted: boolean;
  /** Number of holds in a row during which another program has raised memory.high. */
  losses: number;
  isOver: boolean;
  /** When each reason was last reported. */
  readonly reported: Map<Reason, number>;
}

export const newProgress = (admitted: string, since: number, seenAt: number): Progress => ({
  admitted,
  since,
  seenAt,
  reclaimed: 0,
  times: 0,
  notBefore: 0,
  isStuck: false,
  isInterrupted: false,
  losses: 0,
  isOver: false,
  reported: new Map(),
});
