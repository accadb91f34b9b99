import { setTimeout as delay } from 'node:timers/promises';
import { type Lease, type LeaseStore, haltOf, halted, heldBy, holderOf, released } from './lease.ts';
import { type Patience, pause, sayingOnce, untilDone } from './patience.ts';
import { wordsOf } from '../../kubernetes/client/index.ts';

/**
 * One node at a time: whoever changes its node holds the Lease meanwhile. A node that fails halts those that come after it, until an
 * operator has looked.
 */
export interface TurnParts extends Patience {
  readonly store: LeaseStore;
  /** This node's name: a pod that comes after one that was killed goes on with its turn. */
  readonly holder: string;
  /** After this long without a sign of life the holder has lost it, in milliseconds. */
  readonly durationMs: number;
  /** Whether another node is ready, or has left the cluster. */
  readonly isWell: (node: string, signal: AbortSignal) => Promise<boolean>;
}

export interface Turn {
  /** Gives it to the next. With a reason: nobody installs any more. Rejects only with the signal's reason. */
  end(signal: AbortSignal, why?: string): Promise<void>;
}

/** What is known of the Lease's holder: by our own clock, since those of nodes may differ. */
export class Watched {
  #mark = '';
  #since = 0;

  /** How long the holder has given no sign of life, in milliseconds. @param now of a clock that only goes forward */
  silence({ spec }: Lease, now: number): number {
    const mark = JSON.stringify([spec?.holderIdentity, spec?.renewTime, spec?.leaseTransitions]);
    if (mark !== this.#mark) [this.#mark, this.#since] = [mark, now];
    return now - this.#since;
  }
}

/** What stands between us and our turn; `lost`: its holder, which is not heard of any more. */
type Hindrance =
  | { readonly kind: 'none' }
  | { readonly kind: 'wait'; readonly why: string }
  | { readonly kind: 'lost'; readonly holder: string };

/** @param isBoundByHalt whether what is to be done is what a failure halts */
export function hindrance(lease: Lease, holder: string, silent: boolean, isBoundByHalt: boolean): Hindrance {
  const why = haltOf(lease);
  if (isBoundByHalt && why !== undefined)
    return { kind: 'wait', why: `halted: ${why} (docs/kubernetes.md says how to go on)` };
  const other = holderOf(lease);
  if (other === undefined || other === holder) return { kind: 'none' };
  return silent ? { kind: 'lost', holder: other } : { kind: 'wait', why: `it is the turn of ${other}` };
}

/**
 * Waits for this node's turn. Rejects only with the signal's reason.
 * @param work what is to be done: a halt holds up what installs, and not what takes off
 */
export async function takeTurn(parts: TurnParts, work: 'install' | 'uninstall', signal: AbortSignal): Promise<Turn> {
  const { store, holder, durationMs, random } = parts;
  const [watched, say] = [new Watched(), sayingOnce(parts.say)];
  for (let tries = 1; ; tries += 1) {
    const lease = await untilDone('the Lease cannot be read', parts, signal, (at) => store.read(at));
    const silent = watched.silence(lease, performance.now()) > durationMs;
    const found = hindrance(lease, holder, silent, work === 'install');
    if (found.kind === 'wait') say(`waiting: ${found.why}`);
    else if (await write(parts, await ours(parts, lease, found, work, signal), signal)) {
      const taken = await untilDone('the Lease cannot be read', parts, signal, (at) => store.read(at));
      if (holderOf(taken) === holder) return keeping(parts);
    }
    await delay(pause(tries, random()), undefined, { signal });
  }
}

/** The turn that a pod of this node has left unfinished, if the Lease says so. Rejects only with the signal's reason. */
export async function unfinishedTurn(parts: TurnParts, signal: AbortSignal): Promise<Turn | undefined> {
  const lease = await untilDone('the Lease cannot be read', parts, signal, (at) => parts.store.read(at));
  return holderOf(lease) === parts.holder ? keeping(parts) : undefined;
}

/** The Lease as it is to be: ours, or halted, when a node has been lost in the middle of its turn. */
async function ours(
  parts: TurnParts,
  lease: Lease,
  found: Hindrance,
  work: 'install' | 'uninstall',
  signal: AbortSignal,
): Promise<Lease> {
  const mine = (free: Lease): Lease => heldBy(free, parts.holder, parts.durationMs);
  if (found.kind !== 'lost') return mine(lease);
  const { holder } = found;
  const well = await untilDone(`${holder} cannot be read`, parts, signal, (at) => parts.isWell(holder, at));
  // Its pod was killed, and it goes on with its work when it comes back.
  if (well) return mine(lease);
  const why = `${holder}: was lost in its turn, and is not Ready`;
  parts.say(`halting: ${why}`);
  const free = halted(released(lease), why);
  return work === 'install' ? free : mine(free);
}

const write = (parts: TurnParts, lease: Lease, signal: AbortSignal): Promise<boolean> =>
  untilDone('the Lease cannot be written', parts, signal, (at) => parts.store.write(lease, at));

/** Gives signs of life until the turn ends. */
function keeping(parts: TurnParts): Turn {
  const { holder, durationMs, say } = parts;
  const over = new AbortController();
  const change = (to: (lease: Lease) => Lease, signal: AbortSignal): Promise<boolean> => changing(parts, to, signal);
  const renewing = (async (): Promise<void> => {
    for (;;) {
      await delay(durationMs / 3, undefined, { signal: over.signal });
      const still = await change((lease) => heldBy(lease, holder, durationMs), over.signal);
      if (still) continue;
      say('another node has taken the Lease: this one has not been heard of for too long');
      return;
    }
  })().catch((error: unknown) => {
    if (!over.signal.aborted) say(`the Lease is not renewed any more: ${wordsOf(error)}`);
  });
  return {
    async end(signal, why) {
      over.abort();
      await renewing;
      await change((lease) => {
        const free = holderOf(lease) === holder ? released(lease) : lease;
        return why === undefined ? free : halted(free, `${holder}: ${why}`);
      }, signal);
    },
  };
}

/**
 * Reads, changes and writes, again when somebody else has written meanwhile. Gives whether it was still ours; a change that is made to one
 * of another's is written too, but for a sign of life.
 */
async function changing(parts: TurnParts, to: (lease: Lease) => Lease, signal: AbortSignal): Promise<boolean> {
  for (;;) {
    const lease = await untilDone('the Lease cannot be read', parts, signal, (at) => parts.store.read(at));
    const isOurs = holderOf(lease) === parts.holder;
    const next = to(lease);
    if (!isOurs && holderOf(next) === parts.holder) return false;
    if (await write(parts, next, signal)) return isOurs;
  }
}
