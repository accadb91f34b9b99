import { setTimeout as delay } from 'node:timers/promises';
import { type Lease, type LeaseStore, haltOf, halted, heldBy, holderOf, released } from './lease.ts';
import { type RetryOptions, pause, loggingChanges, retry } from './retry.ts';
import { wordsOf } from '../../kubernetes/client/index.ts';

/**
 * One node at a time: a pod holds the Lease while it changes its node. A failure halts all further installations until an operator
 * removes the annotation.
 */
export interface TurnContext extends RetryOptions {
  readonly store: LeaseStore;
  /** Name of this node. A new pod continues the turn of a killed one. */
  readonly holder: string;
  /** A holder that does not renew the Lease for this time loses it, in milliseconds. */
  readonly durationMs: number;
  /** Whether another node is Ready, or has left the cluster. */
  readonly isHealthy: (node: string, signal: AbortSignal) => Promise<boolean>;
}

export interface Turn {
  /** Releases the Lease. With `why`, halts all installations. Rejects only with the reason of the signal. */
  end(signal: AbortSignal, why?: string): Promise<void>;
}

/** Measures how long the holder has not renewed the Lease, by our own clock: clocks of nodes may differ. */
export class RenewalWatch {
  #mark = '';
  #since = 0;

  /** Time since the last renewal in milliseconds. @param now from a monotonic clock */
  silence({ spec }: Lease, now: number): number {
    const mark = JSON.stringify([spec?.holderIdentity, spec?.renewTime, spec?.leaseTransitions]);
    if (mark !== this.#mark) [this.#mark, this.#since] = [mark, now];
    return now - this.#since;
  }
}

/** What keeps this node from its turn. `lost`: the holder does not renew the Lease. */
type Obstacle =
  | { readonly kind: 'none' }
  | { readonly kind: 'wait'; readonly why: string }
  | { readonly kind: 'lost'; readonly holder: string };

/** @param isBoundByHalt true for an installation: a halt does not stop removals */
export function obstacle(lease: Lease, holder: string, silent: boolean, isBoundByHalt: boolean): Obstacle {
  const why = haltOf(lease);
  if (isBoundByHalt && why !== undefined)
    return { kind: 'wait', why: `halted: ${why} (see docs/kubernetes.md for how to continue)` };
  const other = holderOf(lease);
  if (other === undefined || other === holder) return { kind: 'none' };
  return silent ? { kind: 'lost', holder: other } : { kind: 'wait', why: `it is the turn of ${other}` };
}

/**
 * Waits for the turn of this node. Rejects only with the reason of the signal.
 * @param work a halt stops installations, but not removals
 */
export async function takeTurn(
  context: TurnContext,
  work: 'install' | 'uninstall',
  signal: AbortSignal,
): Promise<Turn> {
  const { store, holder, durationMs, random } = context;
  const [watched, say] = [new RenewalWatch(), loggingChanges(context.say)];
  for (let tries = 1; ; tries += 1) {
    const lease = await retry('the Lease cannot be read', context, signal, (at) => store.read(at));
    const silent = watched.silence(lease, performance.now()) > durationMs;
    const found = obstacle(lease, holder, silent, work === 'install');
    if (found.kind === 'wait') say(`waiting: ${found.why}`);
    else if (await write(context, await nextLease(context, lease, found, work, signal), signal)) {
      const taken = await retry('the Lease cannot be read', context, signal, (at) => store.read(at));
      if (holderOf(taken) === holder) return renewedTurn(context);
    }
    await delay(pause(tries, random()), undefined, { signal });
  }
}

/** Returns the unfinished turn of an earlier pod of this node, if the Lease has one. Rejects only with the reason of the signal. */
export async function unfinishedTurn(context: TurnContext, signal: AbortSignal): Promise<Turn | undefined> {
  const lease = await retry('the Lease cannot be read', context, signal, (at) => context.store.read(at));
  return holderOf(lease) === context.holder ? renewedTurn(context) : undefined;
}

/** Returns the Lease to write: held by this node, or halted if a node was lost during its turn. */
async function nextLease(
  context: TurnContext,
  lease: Lease,
  found: Obstacle,
  work: 'install' | 'uninstall',
  signal: AbortSignal,
): Promise<Lease> {
  const held = (free: Lease): Lease => heldBy(free, context.holder, context.durationMs);
  if (found.kind !== 'lost') return held(lease);
  const { holder } = found;
  const isHealthy = await retry(`${holder} cannot be read`, context, signal, (at) => context.isHealthy(holder, at));
  // Only its pod was killed: the next one continues its work.
  if (isHealthy) return held(lease);
  const why = `${holder}: lost during its turn, and not Ready`;
  context.say(`halting: ${why}`);
  const free = halted(released(lease), why);
  return work === 'install' ? free : held(free);
}

const write = (context: TurnContext, lease: Lease, signal: AbortSignal): Promise<boolean> =>
  retry('the Lease cannot be written', context, signal, (at) => context.store.write(lease, at));

/** Renews the Lease until the turn ends. */
function renewedTurn(context: TurnContext): Turn {
  const { holder, durationMs, say } = context;
  const over = new AbortController();
  const change = (to: (lease: Lease) => Lease, signal: AbortSignal): Promise<boolean> => changing(context, to, signal);
  const renewing = (async (): Promise<void> => {
    for (;;) {
      await delay(durationMs / 3, undefined, { signal: over.signal });
      const still = await change((lease) => heldBy(lease, holder, durationMs), over.signal);
      if (still) continue;
      say('another node has taken the Lease: this node did not renew it in time');
      return;
    }
  })().catch((error: unknown) => {
    if (!over.signal.aborted) say(`the Lease is no longer renewed: ${wordsOf(error)}`);
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
 * Reads, changes and writes the Lease, and repeats this on a conflict. Returns whether this node still held it. If it did not, a
 * renewal is not written, but any other change is.
 */
async function changing(context: TurnContext, to: (lease: Lease) => Lease, signal: AbortSignal): Promise<boolean> {
  for (;;) {
    const lease = await retry('the Lease cannot be read', context, signal, (at) => context.store.read(at));
    const isOurs = holderOf(lease) === context.holder;
    const next = to(lease);
    if (!isOurs && holderOf(next) === context.holder) return false;
    if (await write(context, next, signal)) return isOurs;
  }
}
