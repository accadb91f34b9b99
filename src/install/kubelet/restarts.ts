import { type Node, SERVICE, unitProperties } from '../host/index.ts';
import { type UnitEnd, type UnitHistory, endText, unitHistory } from './unit-history.ts';

/** How often systemd has started kubelet again because it had ended on its own (Restart=). */
export interface Restarts {
  /** Since a person or a program last started it, if the journal has that start; otherwise since systemd last reset `NRestarts`. */
  readonly total: number;
  /** Those of the last {@link RECENT_MINUTES}; undefined if the journal has nothing about the unit: then nobody knows. */
  readonly recent: number | undefined;
  /** Those of `recent` since the shim was last started, if kubelet uses it: another shim may have been what ended kubelet. */
  readonly sinceShim: number | undefined;
  /** How long it has run, in seconds; undefined if it does not run. */
  readonly runsFor: number | undefined;
  /** Whether it has ended on its own, and systemd starts it again soon. */
  readonly isWaiting: boolean;
  /** `exit code 1`; undefined if systemd and the journal do not have it. */
  readonly lastEnd: string | undefined;
}

/** An end before that says nothing about how kubelet is now. */
export const RECENT_MINUTES = 10;

/** They change if a start ends, before the journal has its end. */
const THIS_START = ['SubState', 'MainPID', 'ExecMainStartTimestampMonotonic'];
const PROPERTIES = [...THIS_START, 'ActiveState', 'NRestarts', 'Result', 'ExecMainCode', 'ExecMainStatus'];
/** CLD_EXITED, in `ExecMainCode` (waitid(2)). */
const EXITED = 1;

/**
 * Reads from systemd how often kubelet has started. `NRestarts` may count from months ago, and systemd forgets the last end at the next
 * start: both are in the journal. Rejects if systemd does not answer.
 * @param isAtShim whether kubelet uses the shim
 */
export async function readRestarts({ kubeletUnit: unit }: Node, isAtShim: boolean): Promise<Restarts> {
  const property = await unitProperties(unit, PROPERTIES);
  const numberOf = (name: string): number => Number(property(name)[0] ?? 0);
  const counter = numberOf('NRestarts');
  const isRunning = numberOf('MainPID') !== 0;
  const runsFor = isRunning ? secondsSince(numberOf('ExecMainStartTimestampMonotonic')) : undefined;
  const isActivating = property('ActiveState')[0] === 'activating';
  const isWaiting = isActivating && (property('SubState')[0] ?? '').startsWith('auto-restart');
  const code = numberOf('ExecMainCode');
  const exit = code === 0 ? undefined : { isExit: code === EXITED, status: numberOf('ExecMainStatus') };
  const known = isRunning ? undefined : endOf({ process: exit, result: property('Result')[0] ?? '' });
  const isRecent = runsFor === undefined || runsFor < RECENT_MINUTES * 60;
  const history = counter > 0 && isRecent ? await unitHistory(unit, RECENT_MINUTES) : undefined;
  const lastEnd = known ?? (history?.lastEnd && endText(history.lastEnd));
  const isStarted = isRunning || (isActivating && !isWaiting);
  const counts =
    history !== undefined && isStarted && (await isStartOfHand(unit, history, property))
      ? { total: 0, recent: 0 }
      : countsOf(history, counter, isRecent);
  const since = isAtShim && history !== undefined ? await startOfShim() : 0;
  const later = history?.restartTimes.filter((time) => time >= since).length ?? 0;
  const sinceShim = counts.recent === undefined ? undefined : Math.min(counts.recent, later);
  return { ...counts, sinceShim, runsFor, isWaiting, lastEnd };
}

/** Returns when the shim became ready, in microseconds of the monotonic clock; 0 if it is not, or is no unit. */
async function startOfShim(): Promise<number> {
  const property = await unitProperties(SERVICE, ['ActiveState', 'ActiveEnterTimestampMonotonic']);
  return property('ActiveState')[0] === 'active' ? Number(property('ActiveEnterTimestampMonotonic')[0] ?? 0) : 0;
}

function countsOf(
  history: UnitHistory | undefined,
  counter: number,
  isRecent: boolean,
): Pick<Restarts, 'total' | 'recent'> {
  if (counter === 0 || !isRecent) return { total: counter, recent: 0 };
  if (history === undefined) return { total: counter, recent: undefined };
  const recent = Math.min(counter, history.restarts);
  return { total: history.isStartedByHand ? recent : counter, recent };
}

/**
 * Whether a person or a program has started a unit that ended. systemd (up to 254 at least) keeps `NRestarts` if the unit is stopped or
 * started during the pause before a restart, as `kubeadm join` does with a kubelet that has waited for it (service_stop and service_start
 * in src/core/service.c reset it only after an end without a restart). The journal has the restarts that systemd schedules.
 * @param before the properties that were read before the history
 */
async function isStartOfHand(unit: string, history: UnitHistory, before: Properties): Promise<boolean> {
  if (!history.hasEnded) return false;
  // The last restart may not be in the journal yet.
  if (history.counter !== undefined && String(history.counter) !== before('NRestarts')[0]) return false;
  // The end in the journal may be one of the start that was read.
  const now = await unitProperties(unit, THIS_START);
  return THIS_START.every((name) => now(name)[0] === before(name)[0]);
}

type Properties = (name: string) => readonly string[];

/** The end of a unit that was never started, or was stopped, has no cause. */
const endOf = (end: UnitEnd): string | undefined =>
  end.process === undefined && ['', 'success'].includes(end.result) ? undefined : endText(end);

/** The clock of systemd's monotonic times is CLOCK_MONOTONIC, in microseconds. */
const secondsSince = (at: number): number =>
  Math.max(0, Math.floor((Number(process.hrtime.bigint() / 1000n) - at) / 1e6));
