import { pause } from '../../core/index.ts';
import { wordsOf } from '../../kubernetes/index.ts';
import {
  halted,
  haltOf,
  isRemoval,
  type Lease,
  type LeaseStore,
  pauseOf,
  releasedBy,
  revisionOf,
  takenBy,
  turnsOf,
  vouchedFor,
  vouchedOf,
  type Work,
} from './lease.ts';
import { loggingChanges, type RetryOptions, retry, retryDelay } from './retry.ts';

/**
 * Settings of turns. A pod changes its node only in a turn, and the number of concurrent turns is limited. A failure
 * halts all further installations of the same revision until an operator removes the annotation.
 */
export interface TurnContext extends RetryOptions, TurnRules {
  readonly store: LeaseStore;
  /** A node that does not renew its turn for this time loses it, in milliseconds. */
  readonly durationMs: number;
  /** Whether another node is Ready, or has left the cluster. */
  readonly isHealthy: (node: string, signal: AbortSignal) => Promise<boolean>;
  /** Whether this node is a canary. */
  readonly isCanary: (signal: AbortSignal) => Promise<boolean>;
}

export interface Turn {
  /** Ends the turn. With `why`, halts all installations. Rejects only with the reason of the signal. */
  end(signal: AbortSignal, why?: string): Promise<void>;
}

/**
 * In a removal, the restarted kubelet ends the pod, so that no pod ends the turn. After this time without a renewal,
 * other nodes check whether the node is Ready. By then the API no longer has the old kubelet's status: a silent node is
 * not Ready after 40 s, or 50 s from Kubernetes 1.32 on (node-monitor-grace-period).
 */
const REMOVAL_MS = 60_000;

/** Returns the time without a renewal after which a turn may be over. */
const shortened = (durationMs: number, isOfRemoval: boolean): number =>
  isOfRemoval ? Math.min(REMOVAL_MS, durationMs) : durationMs;

/** Measures how long nodes have not renewed their turns, by our own clock: clocks of nodes may differ. */
class RenewalWatch {
  #seen = new Map<string, { readonly mark: string; readonly since: number }>();
  #last = Infinity;

  /** @param durationMs the time without a renewal after which a turn is over, in milliseconds */
  constructor(readonly durationMs: number) {}

  /**
   * Notes the turns of a Lease. If the Lease could not be read for a third of the duration, in which each turn is
   * renewed once, the time without a renewal begins again: the nodes that have a turn may not have reached the API
   * server either.
   * @param now from a monotonic clock
   * @param slept the pause before this look, in milliseconds
   */
  look(lease: Lease, now: number, slept: number): void {
    const gap = now - this.#last - slept;
    const turns = Object.entries(turnsOf(lease));
    this.#seen = new Map(
      turns.map(([node, mark]) => {
        const isKept = gap <= shortened(this.durationMs, isRemoval(mark)) / 3;
        const before = isKept ? this.#seen.get(node) : undefined;
        return [node, before?.mark === mark ? before : { mark, since: now }];
      }),
    );
    this.#last = now;
  }

  /** Whether the turn of a node is over. */
  isSilent(node: string, now: number): boolean {
    return this.#silence(node, now) > this.durationMs;
  }

  /** Whether the pod of a node from which the shim is removed seems to have ended. */
  hasLeft(node: string, now: number): boolean {
    return isRemoval(this.#seen.get(node)?.mark ?? '') && this.#silence(node, now) > shortened(this.durationMs, true);
  }

  /** Time since the last renewal of a node in milliseconds. */
  #silence(node: string, now: number): number {
    return now - (this.#seen.get(node)?.since ?? now);
  }
}

/** Attempt number that sets the first pause: 2 to 4 s, because a turn lasts for at least 10 s. */
const FIRST_TRY = 2;
/**
 * Attempt number that limits the pause. For a removal it is 8 to 16 s, because each such turn ends only when other pods
 * check it, and few pods wait at a time.
 */
const LAST_TRY = { install: Infinity, uninstall: 5 } as const;

/** Waits for the turn of this node. Rejects only with the reason of the signal. */
export async function takeTurn(context: TurnContext, work: Asking['work'], signal: AbortSignal): Promise<Turn> {
  const { holder, random, clock } = context;
  const [watched, say] = [new RenewalWatch(context.durationMs), loggingChanges(context.say)];
  for (let [tries, slept] = [1, 0]; ; tries += 1) {
    const lease = await read(context, signal);
    watched.look(lease, clock.now(), slept);
    const isSilent = (node: string): boolean => watched.isSilent(node, clock.now());
    const hasLeft = (node: string): boolean => watched.hasLeft(node, clock.now());
    const found = await obstacleNow(context, lease, { work, isSilent, hasLeft }, signal);
    if (found.kind === 'wait' || found.kind === 'canaries') say(`waiting: ${found.why}`);
    else if (await write(context, await nextLease(context, lease, found, work, signal), signal)) {
      const taken = await read(context, signal);
      if (turnsOf(taken)[holder] !== undefined) return renewedTurn(context, work);
    }
    slept = retryDelay(Math.min(tries + FIRST_TRY, LAST_TRY[work]), random());
    await pause(clock, slept, signal);
  }
}

/** Asks whether this node is a canary or other nodes are Ready only when it matters: each takes a request. */
async function obstacleNow(
  context: TurnContext,
  lease: Lease,
  asking: Omit<Asking, 'isCanary'>,
  signal: AbortSignal,
): Promise<Obstacle> {
  let found = obstacle(lease, context, { ...asking, isCanary: false });
  if (found.kind === 'canaries' && (await retry('this node cannot be read', context, signal, context.isCanary)))
    found = obstacle(lease, context, { ...asking, isCanary: true });
  if (found.kind !== 'wait') return found;
  for (const node of found.left) if (await isHealthy(context, node, signal)) return { kind: 'left', node };
  return found;
}

const isHealthy = (context: TurnContext, node: string, signal: AbortSignal): Promise<boolean> =>
  retry(`${node} cannot be read`, context, signal, (at) => context.isHealthy(node, at));

/** Returns the unfinished turn, if any, of this node's earlier pod. Rejects only with the signal's reason. */
export async function unfinishedTurn(context: TurnContext, signal: AbortSignal): Promise<Turn | undefined> {
  const lease = await read(context, signal);
  return turnsOf(lease)[context.holder] === undefined ? undefined : renewedTurn(context, 'install');
}

/** Returns the Lease to write: with the turn of this node, or halted if a node was lost during its turn. */
async function nextLease(
  context: TurnContext,
  lease: Lease,
  found: Obstacle,
  work: Asking['work'],
  signal: AbortSignal,
): Promise<Lease> {
  const taken = (free: Lease): Lease => takenBy(free, context.holder, { ...context, work }, context.clock.wallTime());
  if (found.kind !== 'lost' && found.kind !== 'left') return taken(lease);
  const { node } = found;
  const free = releasedBy(lease, node, context.clock.wallTime());
  // Only the node's pod was killed: the next pod or the host continues its work.
  if (found.kind === 'left' || (await isHealthy(context, node, signal)))
    return isFull(context, free) ? free : taken(free);
  const why = `${node}: lost during its turn, and not Ready`;
  context.say(`halting: ${why}`);
  // The pod that has changed the node may be of another revision. This pod's revision may be the remedy.
  const stopped = halted(free, why, revisionOf(turnsOf(lease)[node] ?? '') ?? context.revision);
  return work === 'install' || isFull(context, free) ? stopped : taken(stopped);
}

const isFull = ({ parallel, holder }: TurnContext, lease: Lease): boolean =>
  Object.keys(turnsOf(lease)).filter((name) => name !== holder).length >= parallel;

/** Reads the Lease and validates its records: an invalid annotation fails this attempt. */
const read = (context: TurnContext, signal: AbortSignal): Promise<Lease> =>
  retry('the Lease cannot be read', context, signal, async (at) => {
    const lease = await context.store.read(at);
    turnsOf(lease);
    vouchedOf(lease, context.revision);
    haltOf(lease, context.revision);
    return lease;
  });

const write = (context: TurnContext, lease: Lease, signal: AbortSignal): Promise<boolean> =>
  retry('the Lease cannot be written', context, signal, (at) => context.store.write(lease, at));

/** Renews the turn until it ends. */
function renewedTurn(context: TurnContext, work: Work): Turn {
  const { holder, durationMs, say, clock, revision } = context;
  const over = new AbortController();
  const renewing = (async (): Promise<void> => {
    for (;;) {
      await pause(clock, shortened(durationMs, work === 'uninstall') / 3, over.signal);
      const still = await changing(
        context,
        (lease) => takenBy(lease, holder, { durationMs, work, revision }, clock.wallTime()),
        over.signal,
      );
      if (still) continue;
      say('another node has taken the turn of this one, which was not renewed in time');
      return;
    }
  })().catch((error: unknown) => {
    if (!over.signal.aborted) say(`the Lease is no longer renewed: ${wordsOf(error)}`);
  });
  return {
    async end(signal, why) {
      over.abort();
      await renewing;
      const ended = (lease: Lease): Lease => {
        const free = turnsOf(lease)[holder] === undefined ? lease : releasedBy(lease, holder, clock.wallTime());
        return why === undefined ? free : halted(free, `${holder}: ${why}`, revision);
      };
      await changing(context, ended, signal);
    },
  };
}

/** Halts all installations of this revision. Rejects only with the reason of the signal. */
export async function haltAll(context: TurnContext, why: string, signal: AbortSignal): Promise<void> {
  await changing(context, (lease) => halted(lease, `${context.holder}: ${why}`, context.revision), signal);
}

/** Returns the canary nodes that vouch for this revision. Rejects only with the reason of the signal. */
export const vouchedCanaries = async (context: TurnContext, signal: AbortSignal): Promise<readonly string[]> =>
  vouchedOf(await read(context, signal), context.revision);

/** Records that this node vouches for the revision of its pod. Rejects only with the reason of the signal. */
export async function vouchFor(context: TurnContext, signal: AbortSignal): Promise<void> {
  await changing(context, (lease) => vouchedFor(lease, context.revision, context.holder, context.canaries), signal);
}

/**
 * Reads, changes and writes the Lease, and repeats this on a conflict. Returns whether it was still the turn of this
 * node. If it was not, a renewal is not written, but any other change is.
 */
async function changing(context: TurnContext, to: (lease: Lease) => Lease, signal: AbortSignal): Promise<boolean> {
  const { holder, clock, random } = context;
  for (let tries = 1; ; tries += 1) {
    const lease = await read(context, signal);
    const isOurs = turnsOf(lease)[holder] !== undefined;
    const next = to(lease);
    if (!isOurs && turnsOf(next)[holder] !== undefined) return false;
    if (await write(context, next, signal)) return isOurs;
    // A random pause, so that nodes that have written at the same time do not collide again.
    await pause(clock, retryDelay(tries, random()) / 10, signal);
  }
}

/** The reason why it is not a node's turn. */
type Obstacle =
  | { readonly kind: 'none' }
  /** `left`: nodes whose pod has ended in its turn, as in each removal. A turn is free once such a node is Ready. */
  | { readonly kind: 'wait'; readonly why: string; readonly left: readonly string[] }
  /** Too few canary nodes vouch for the release. Canary nodes do not wait for them. */
  | { readonly kind: 'canaries'; readonly why: string }
  /** A node that has the turn does not renew it. */
  | { readonly kind: 'lost'; readonly node: string }
  /** The pod of a node has ended in the turn of a removal, and the node is Ready. */
  | { readonly kind: 'left'; readonly node: string };

/** The rules of turns. */
interface TurnRules {
  /** Name of this node. A new pod continues the turn of a killed one. */
  readonly holder: string;
  /** How many nodes may be changed at the same time. */
  readonly parallel: number;
  /** Revision of the DaemonSet that this pod belongs to; empty if unknown. */
  readonly revision: string;
  /** Number of canary nodes that must vouch for a revision before other nodes get it; 0: none. */
  readonly canaries: number;
}

interface Asking {
  readonly work: Work;
  readonly isCanary: boolean;
  /** Whether a node has not renewed its turn in time. */
  readonly isSilent: (node: string) => boolean;
  /** Whether a node without the shim has stopped renewing its turn: the restarted kubelet ended its pod. */
  readonly hasLeft: (node: string) => boolean;
}

/** Maximum number of names in a log line. */
const SHOWN = 3;

/** Pause, halt and canaries stop installations, but not removals. Throws ApiUnreached for an invalid annotation. */
function obstacle(lease: Lease, rules: TurnRules, { work, isCanary, isSilent, hasLeft }: Asking): Obstacle {
  const found = work === 'install' ? obstacleOfInstallation(lease, rules, isCanary) : undefined;
  if (found !== undefined) return found;
  const others = Object.keys(turnsOf(lease)).filter((name) => name !== rules.holder);
  const lost = others.find(isSilent);
  if (lost !== undefined) return { kind: 'lost', node: lost };
  if (others.length < rules.parallel) return { kind: 'none' };
  const rest = others.length - SHOWN;
  const names = others.slice(0, SHOWN).join(', ') + (rest > 0 ? ` and ${rest} more` : '');
  return { kind: 'wait', why: `it is the turn of ${names}`, left: others.filter(hasLeft) };
}

function obstacleOfInstallation(lease: Lease, rules: TurnRules, isCanary: boolean): Obstacle | undefined {
  const paused = pauseOf(lease);
  if (paused !== undefined) return { kind: 'wait', why: `paused: ${paused}`, left: [] };
  const why = haltOf(lease, rules.revision);
  if (why !== undefined)
    return { kind: 'wait', why: `halted: ${why} (see docs/kubernetes.md for how to continue)`, left: [] };
  if (isCanary || rules.canaries === 0) return undefined;
  const vouching = vouchedOf(lease, rules.revision).length;
  if (vouching >= rules.canaries) return undefined;
  return { kind: 'canaries', why: `${vouching} of ${rules.canaries} canary nodes have passed with this release` };
}
