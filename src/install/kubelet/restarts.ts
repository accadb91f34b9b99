import { constants } from 'node:os';
import { execa } from 'execa';
import { type Node, SERVICE } from '../host/site.ts';
import { unitProperties } from '../host/systemd.ts';

/** How often systemd has started kubelet again because it had ended on its own (Restart=). */
interface Restarts {
  /** Since its last start by a person or program, if journaled. Otherwise since systemd reset `NRestarts`. */
  readonly total: number;
  /** In the last {@link RECENT_MINUTES}. Undefined (unknown) if the journal has nothing about the unit. */
  readonly recent: number | undefined;
  /** Part of `recent` since the shim's last start, if kubelet uses it. Earlier ends may be due to another shim. */
  readonly sinceShim: number | undefined;
  /** Time since kubelet's start in seconds; undefined if it does not run. */
  readonly runsFor: number | undefined;
  /** Whether it has ended on its own, and systemd starts it again soon. */
  readonly isWaiting: boolean;
  /** `exit code 1`; undefined if systemd and the journal do not have it. */
  readonly lastEnd: string | undefined;
}

/** Earlier ends than this do not show the present state of kubelet. */
const RECENT_MINUTES = 10;

/** Properties that change when a start ends, before the journal reports the end. */
const THIS_START = ['SubState', 'MainPID', 'ExecMainStartTimestampMonotonic'];
const PROPERTIES = [...THIS_START, 'ActiveState', 'NRestarts', 'Result', 'ExecMainCode', 'ExecMainStatus'];
/** CLD_EXITED, in `ExecMainCode` (waitid(2)). */
const EXITED = 1;

/**
 * Reads from systemd how often kubelet has started. `NRestarts` may count from months ago, and systemd forgets the last
 * end at the next start: both are in the journal. Rejects if systemd does not answer.
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
 * Whether a person or a program has started a unit that ended. systemd (up to 254 at least) keeps `NRestarts` if the
 * unit is stopped or started during the pause before a restart, as `kubeadm join` does with a kubelet that has waited
 * for it (service_stop and service_start in src/core/service.c reset it only after an end without a restart). The
 * journal has the restarts that systemd schedules.
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

/** Describes the end of a unit; undefined if the unit was stopped or never started. */
const endOf = (end: UnitEnd): string | undefined =>
  end.process === undefined && ['', 'success'].includes(end.result) ? undefined : endText(end);

/** The clock of systemd's monotonic times is CLOCK_MONOTONIC, in microseconds. */
const secondsSince = (at: number): number =>
  Math.max(0, Math.floor((Number(process.hrtime.bigint() / 1000n) - at) / 1e6));

/** How a start of a unit ended. */
interface UnitEnd {
  /** How its main process ended; undefined if none was started. */
  readonly process: { readonly isExit: boolean; readonly status: number } | undefined;
  /** systemd's Result: `success`, `exit-code`, `signal`, `oom-kill`, `resources`. */
  readonly result: string;
}

/** Results that only repeat how the process ended. */
const PLAIN = ['', 'exit-code', 'signal', 'core-dump'];

/** `exit code 1`, `signal 9 (SIGKILL)`, `result oom-kill, signal 9 (SIGKILL)`, `result success`. */
export function endText({ process, result }: UnitEnd): string {
  if (result === 'success') return 'result success';
  const texts = PLAIN.includes(result) ? [] : [`result ${result}`];
  if (process !== undefined)
    texts.push(process.isExit ? `exit code ${process.status}` : `signal ${signalText(process.status)}`);
  return texts.length === 0 ? `result ${result}` : texts.join(', ');
}

function signalText(signal: number): string {
  const [name] = Object.entries(constants.signals).find(([, number]) => number === signal) ?? [];
  return name === undefined ? String(signal) : `${signal} (${name})`;
}

/** The journal's entries about a unit that systemd starts again and again. */
interface UnitHistory {
  /** Automatic restarts (Restart=) since a person or a program last started the unit. */
  readonly restarts: number;
  /** When each was scheduled, in microseconds of the monotonic clock. Infinity if the journal lacks it. */
  readonly restartTimes: readonly number[];
  /** Whether a person or a program started it in these minutes, before its last end. */
  readonly isStartedByHand: boolean;
  /** Whether it has ended without a scheduled restart. If it runs then, a person or a program started it. */
  readonly hasEnded: boolean;
  /** systemd's `NRestarts` at the last restart. Undefined without a restart, or if an old systemd does not log it. */
  readonly counter: number | undefined;
  readonly lastEnd: UnitEnd | undefined;
}

/** IDs in systemd's catalog (src/systemd/sd-messages.h): SD_MESSAGE_UNIT_RESTART_SCHEDULED, and the ends of a start. */
const RESTART = '5eb03494b6584870a536b337290809b3';
const PROCESS_EXIT = '98e322203f7a4ed290d09fe03c09fe15';
const FAILURE = 'd9b373ed55a64feb8242e02dbe79a49c';
const SUCCESS = '7ad2d189f7e94e70a38c781354912448';

/** Maximum number of entries; each restart has several. */
const MOST_ENTRIES = 4096;
const TIMEOUT_MS = 10_000;

/**
 * Reads the automatic restarts of a unit in the last minutes. Returns undefined if the journal has no entries of the
 * unit: it may not be stored, or only root may read it.
 */
export async function unitHistory(unit: string, minutes: number): Promise<UnitHistory | undefined> {
  const kinds = [RESTART, PROCESS_EXIT, FAILURE, SUCCESS].map((id) => `MESSAGE_ID=${id}`);
  const fields = '--output-fields=MESSAGE_ID,EXIT_CODE,EXIT_STATUS,UNIT_RESULT,N_RESTARTS';
  const form = ['--output=json', fields, `--lines=${MOST_ENTRIES}`, '--no-pager', '--quiet'];
  const { stdout, failed } = await execa(
    'journalctl',
    [...form, `--since=-${minutes}min`, '_PID=1', `UNIT=${unit}`, ...kinds],
    { timeout: TIMEOUT_MS, stdin: 'ignore', reject: false, env: { LC_ALL: 'C' } },
  );
  const entries = failed ? [] : stdout.split('\n').flatMap(entryIn);
  if (entries.length === 0) return undefined;
  // systemd logs each restart that it schedules. If the unit ends again without such an entry, it was started by hand.
  const ofUnit = entries.filter(({ id }) => id !== PROCESS_EXIT);
  const areRestarts = ofUnit.map(({ id }) => id === RESTART);
  const byHand = areRestarts.findLastIndex((isRestart, index) => !isRestart && areRestarts[index - 1] === false);
  const restartTimes = ofUnit.slice(byHand + 1).flatMap(({ id, time }) => (id === RESTART ? [time] : []));
  return {
    restarts: restartTimes.length,
    restartTimes,
    isStartedByHand: byHand !== -1,
    hasEnded: areRestarts.at(-1) === false,
    counter: entries.findLast(({ id }) => id === RESTART)?.counter,
    lastEnd: lastEndOf(entries),
  };
}

interface Entry extends UnitEnd {
  readonly id: string;
  readonly time: number;
  readonly counter: number | undefined;
}

function entryIn(line: string): readonly Entry[] {
  if (!line.startsWith('{')) return [];
  const fields = JSON.parse(line) as Readonly<Record<string, unknown>>;
  const textOf = (name: string): string => (typeof fields[name] === 'string' ? fields[name] : '');
  const id = textOf('MESSAGE_ID');
  const exit = { isExit: textOf('EXIT_CODE') === 'exited', status: Number(textOf('EXIT_STATUS')) };
  const counter = textOf('N_RESTARTS') === '' ? undefined : Number(textOf('N_RESTARTS'));
  const time = Number(textOf('__MONOTONIC_TIMESTAMP') || Infinity);
  return [{ id, time, process: id === PROCESS_EXIT ? exit : undefined, result: textOf('UNIT_RESULT'), counter }];
}

/** Returns the last end: of the process, then of the unit. A process that ends without an error has no entry. */
function lastEndOf(entries: readonly Entry[]): UnitEnd | undefined {
  const until = entries.findLastIndex(({ id }) => id !== RESTART);
  const last = entries[until];
  if (last === undefined) return undefined;
  if (last.id === SUCCESS) return { process: undefined, result: 'success' };
  const before = entries.slice(0, until + 1);
  const own = before.slice(before.findLastIndex(({ id }) => id === RESTART) + 1);
  return { process: own.findLast(({ id }) => id === PROCESS_EXIT)?.process, result: last.result };
}

/** Describes a kubelet that does not run. */
export interface Stop {
  /** `kubelet.service is inactive`. */
  readonly what: string;
  /** Whether kubelet cannot run: it ends after each start, or systemd has given up. */
  readonly fails: boolean;
  readonly remedy: string;
}

/** Ends within the last minutes that are more than an accident, or a person with kill(1). */
const MOST_ENDS = 2;
/** Uptime in seconds after which a running kubelet no longer counts as failing at startup. */
const STEADY_SECONDS = 300;

/** Describes a kubelet that does not run: stopped by a person, or ended on its own. @param state ActiveState */
export function stopOf(restarts: Restarts, unit: string, state: string): Stop {
  const { total, sinceShim, isWaiting, lastEnd } = restarts;
  const journal = `journalctl -u ${unit}`;
  // A waiting unit has ended on its own, even if the journal lacks its previous end.
  const ends = isWaiting ? (sinceShim ?? total) + 1 : (sinceShim ?? 0);
  if (state === 'activating' && ends >= MOST_ENDS)
    return { what: `${unit} ends again after each start (${figures(restarts)})`, fails: true, remedy: journal };
  if (isWaiting)
    return { what: `${unit} has ended, and systemd starts it again${after(lastEnd)}`, fails: false, remedy: journal };
  if (state === 'failed') return { what: `${unit} is failed${note(restarts)}`, fails: true, remedy: journal };
  return {
    what: `${unit} is ${state}`,
    fails: false,
    remedy: state === 'activating' ? journal : `systemctl start ${unit}`,
  };
}

/** The restarts of a running kubelet, from systemd. */
export interface RestartNote {
  /** `loop`: kubelet exits after each start. `warning`: several restarts. `note`: one restart, which is harmless. */
  readonly kind: 'loop' | 'warning' | 'note';
  readonly text: string;
}

/**
 * Describes the restarts of a running kubelet; undefined if there are no relevant ones. A single restart is no problem:
 * a person or a monitor of the node may have killed kubelet. Without the journal it is unknown whether systemd or a
 * person started it last.
 */
export function restartNote(restarts: Restarts, unit: string): RestartNote | undefined {
  const { total, sinceShim, runsFor = 0 } = restarts;
  if (total === 0 || runsFor >= RECENT_MINUTES * 60) return undefined;
  const time = timeText(runsFor);
  if (sinceShim !== undefined && sinceShim > MOST_ENDS && runsFor < STEADY_SECONDS)
    return {
      kind: 'loop',
      text: `${unit} ends again after each start (${figures(restarts)}), and has run for ${time} now`,
    };
  const text = `${unit} has run for ${time}, ${figures(restarts)}`;
  return { kind: total < MOST_ENDS ? 'note' : 'warning', text };
}

/** `restarted by systemd 5 times in the last 10 min, last end: exit code 1`. */
function figures({ total, recent, sinceShim, lastEnd }: Restarts): string {
  const end = after(lastEnd);
  if (recent === undefined)
    return `restarted by systemd ${timesText(total)} in all, the journal does not say when${end}`;
  const all = total > recent ? `, ${timesText(total)} in all` : '';
  const later = sinceShim === 0 ? 'not' : timesText(sinceShim ?? recent);
  const since = sinceShim === recent ? '' : `, ${later} since the shim started`;
  return `restarted by systemd ${timesText(recent)} in the last ${RECENT_MINUTES} min${all}${since}${end}`;
}

const note = ({ total, lastEnd }: Restarts): string =>
  `${lastEnd === undefined ? '' : `: ${lastEnd}`}${total === 0 ? '' : `, after systemd had restarted it ${timesText(total)}`}`;

const after = (lastEnd: string | undefined): string => (lastEnd === undefined ? '' : `, last end: ${lastEnd}`);

const timesText = (count: number): string => (count === 1 ? 'once' : `${count} times`);

const timeText = (seconds: number): string =>
  seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
