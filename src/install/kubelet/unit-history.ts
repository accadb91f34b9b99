import { constants } from 'node:os';
import { execa } from 'execa';

/** How a start of a unit ended. */
export interface UnitEnd {
  /** How its main process ended; undefined: none was started. */
  readonly process: { readonly isExit: boolean; readonly status: number } | undefined;
  /** systemd's Result: `success`, `exit-code`, `signal`, `oom-kill`, `resources`. */
  readonly result: string;
}

/** Results that the end of the process says already. */
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

/** What the journal has about a unit that systemd starts again and again. */
export interface UnitHistory {
  /** Starts that followed an end of its own (Restart=), since a person or a program last started it. */
  readonly restarts: number;
  /** When each of them was scheduled, in microseconds of the monotonic clock; Infinity if the journal does not say so. */
  readonly restartTimes: readonly number[];
  /** Whether a person or a program started it in these minutes, before its last end. */
  readonly isStartedByHand: boolean;
  /** Whether it has ended, and no restart is scheduled since: a unit that runs then was started by a person or a program. */
  readonly hasEnded: boolean;
  /** systemd's counter of restarts (`NRestarts`) at the last one; undefined if there is none, or an old systemd does not store it. */
  readonly counter: number | undefined;
  readonly lastEnd: UnitEnd | undefined;
}

/** systemd's catalog (src/systemd/sd-messages.h): SD_MESSAGE_UNIT_RESTART_SCHEDULED, and what ends a start. */
const RESTART = '5eb03494b6584870a536b337290809b3';
const PROCESS_EXIT = '98e322203f7a4ed290d09fe03c09fe15';
const FAILURE = 'd9b373ed55a64feb8242e02dbe79a49c';
const SUCCESS = '7ad2d189f7e94e70a38c781354912448';

/** Several for each restart. */
const MOST_ENTRIES = 4096;
const TIMEOUT_MS = 10_000;

/**
 * Reads the automatic restarts of a unit in the last minutes. Returns undefined if the journal has no entries of it: nothing may store
 * them, or only root may read them.
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
  // systemd logs the restart that it schedules. A unit that ends again without one was started by hand after its end.
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

/** A start ends with its process and then as a unit. Of a process that ends without an error there is no entry. */
function lastEndOf(entries: readonly Entry[]): UnitEnd | undefined {
  const until = entries.findLastIndex(({ id }) => id !== RESTART);
  const last = entries[until];
  if (last === undefined) return undefined;
  if (last.id === SUCCESS) return { process: undefined, result: 'success' };
  const before = entries.slice(0, until + 1);
  const own = before.slice(before.findLastIndex(({ id }) => id === RESTART) + 1);
  return { process: own.findLast(({ id }) => id === PROCESS_EXIT)?.process, result: last.result };
}
