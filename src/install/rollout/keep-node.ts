import { type Clock, messageOf, pause } from '../../core/index.ts';
import type { Drift } from '../../kubelet/endpoint/drift.ts';
import { wordsOf } from '../../kubernetes/index.ts';
import { type Host, type Outcome, outcomeOf, type ShimRun } from './host.ts';
import type { Mode } from './options.ts';

/** The dependencies of {@link keepNode}. */
export interface NodeProgram {
  readonly mode: Mode;
  readonly host: Host;
  /** Copies the program to the host for {@link Host.resizectl}, if it is not there, and removes it. */
  readonly stage: () => Promise<void>;
  /** With `all`, also removes what ended pods have left: no resizectl may run on the host then. */
  readonly unstage: (all: boolean) => Promise<void>;
  /** Flags of `resizectl install` or `resizectl uninstall`. */
  readonly flags: readonly string[];
  /** Whether the API server reports the node as Ready. Rejects like Api. */
  readonly isNodeReady: (signal: AbortSignal) => Promise<boolean>;
  /** Returns whether kubelet's configuration has the shim. Rejects if procfs or the root of the host cannot be read. */
  readonly drift: () => Promise<Drift>;
  /** Whether to install the shim again if kubelet does not use it. */
  readonly repairsDrift: boolean;
  /** Sets the state of the pod: {@link READY}, or why it is not ready. */
  readonly report: (state: string) => Promise<void>;
  readonly say: (line: string) => void;
  readonly clock: Clock;
}

/** The state of a pod whose node is in its mode and Ready. The readiness probe looks for it. */
export const READY = 'ready';

/** Until a refused installation is tried again, in milliseconds. It changes nothing on the node. */
const RETRY_MS = 30_000;
/** Between two checks of the node, and after it has been ready for {@link SETTLED_MS}: ten thousand pods check it. */
const CHECK_MS = 10_000;
const CHECK_SETTLED_MS = 60_000;
const SETTLED_MS = 300_000;
/** How long a restart of the shim counts: longer than the failures of the readiness probe that make a pod unready. */
const RESTARTED_MS = 30_000;
/** The longest state, in characters. */
const LONGEST_STATE = 1000;
/** Time between two repairs: two programs that write the same file must not restart kubelet all the time. */
const REPAIR_MS = 600_000;

/**
 * Brings the node to its mode and reports its state. A failure is not tried again, because a try restarts kubelet: the
 * pod stays unready, which stops the roll-out of its DaemonSet. Rejects only with the reason of the signal, after
 * resizectl has ended on the host.
 */
export async function keepNode(program: NodeProgram, stop: AbortSignal): Promise<never> {
  const { clock } = program;
  await told(program, `resizectl ${program.mode} runs on this node`);
  // Left by an earlier pod with the same process ID, as before a reboot.
  await unstaged(program, false);
  try {
    for (let repairFrom = 0; ; ) {
      const outcome = await brought(program, stop);
      stop.throwIfAborted();
      if (outcome.kind === 'refused') {
        await told(program, outcome.why);
        await pause(clock, RETRY_MS, stop);
        continue;
      }
      await unstaged(program, true);
      if (outcome.kind === 'failed') await told(program, `${outcome.why}; delete this pod to try again`);
      while (outcome.kind === 'failed') await pause(clock, RETRY_MS, stop);
      await watched(program, repairFrom, stop);
      repairFrom = clock.now() + REPAIR_MS;
    }
  } finally {
    await unstaged(program, false);
  }
}

async function told({ say, report }: NodeProgram, state: string): Promise<void> {
  const line = state.replaceAll(/\s+/g, ' ').slice(0, LONGEST_STATE);
  say(line);
  await report(line).catch((error: unknown) => say(`the state was not written: ${messageOf(error)}`));
}

/** Runs resizectl on the host. It changes nothing if the node is in its mode, as after a restart of the pod. */
async function brought({ host, mode, flags, stage }: NodeProgram, stop: AbortSignal): Promise<Outcome> {
  try {
    await stage();
  } catch (error) {
    return { kind: 'refused', why: messageOf(error) };
  }
  stop.throwIfAborted();
  try {
    return outcomeOf(await host.resizectl([mode, ...flags]));
  } catch (error) {
    // The wait for resizectl was killed, which may still run: the next try says so.
    return { kind: 'refused', why: messageOf(error) };
  }
}

async function unstaged({ unstage, say }: NodeProgram, all: boolean): Promise<void> {
  await unstage(all).catch((error: unknown) => say(`the staged program was not removed: ${messageOf(error)}`));
}

/** A check of the node. */
interface Check {
  readonly state: string;
  /** Whether kubelet is configured to use another runtime. */
  readonly isPast: boolean;
  readonly run: string;
  /** Until when the last restart of the shim counts, in milliseconds of the clock. */
  readonly restartedUntil: number;
}

/** Reports the state of the node. Resolves when the shim is to be installed again: after two checks that agree. */
async function watched(program: NodeProgram, repairFrom: number, stop: AbortSignal): Promise<void> {
  const { clock, repairsDrift } = program;
  let since = clock.now();
  for (let last: Check = { state: '', isPast: false, run: '', restartedUntil: 0 }; ; ) {
    const check = await checked(program, last, stop);
    if (check.state !== last.state) {
      since = clock.now();
      await told(program, check.state);
    }
    if (check.isPast && last.isPast && repairsDrift && clock.now() >= repairFrom) return;
    last = check;
    const isSettled = check.state === READY && clock.now() - since >= SETTLED_MS;
    await pause(clock, isSettled ? CHECK_SETTLED_MS : CHECK_MS, stop);
  }
}

/** Checks the node. If the API server does not answer, the last state stays: an outage of it is none of the node. */
async function checked(program: NodeProgram, last: Check, stop: AbortSignal): Promise<Check> {
  let found: Check = { ...last, state: READY, isPast: false };
  try {
    found = await checkedShim(await program.host.shim(), program, last);
    if (found.state !== READY) return found;
  } catch (error) {
    return { ...found, state: messageOf(error) };
  }
  try {
    const isReady = await program.isNodeReady(stop);
    return isReady ? found : { ...found, state: 'this node is not Ready' };
  } catch (error) {
    stop.throwIfAborted();
    return { ...found, state: last.state === READY ? READY : `the API server does not answer: ${wordsOf(error)}` };
  }
}

async function checkedShim({ isActive, run }: ShimRun, program: NodeProgram, last: Check): Promise<Check> {
  const { mode, drift, clock } = program;
  const now = clock.now();
  const restartedUntil = last.run !== '' && run !== last.run ? now + RESTARTED_MS : last.restartedUntil;
  const found = (state: string, isPast = false): Check => ({ state, isPast, run, restartedUntil });
  if (mode === 'uninstall') return found(isActive ? 'the shim runs again' : READY);
  if (!isActive) return found('the shim does not run');
  const { state, note } = await drift();
  if (state !== 'shim') return found(note, state === 'past');
  return found(now < restartedUntil ? 'the shim has ended and was started again' : READY);
}
