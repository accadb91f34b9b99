import { RECENT_MINUTES, type Restarts } from './restarts.ts';

/** How a kubelet is described that does not run. */
export interface Stop {
  /** `kubelet.service is inactive`. */
  readonly what: string;
  /** Whether it cannot run: it ends after each start, or systemd has given up. */
  readonly fails: boolean;
  readonly remedy: string;
}

/** Ends within the last minutes that are more than an accident, or a person with kill(1). */
const MOST_ENDS = 2;
/** A kubelet that has run for so long does not end at its start. In seconds. */
const STEADY_SECONDS = 300;

/** Describes a kubelet that does not run. A person may have stopped it, or it has ended on its own. @param state ActiveState */
export function stopOf(restarts: Restarts, unit: string, state: string): Stop {
  const { total, sinceShim, isWaiting, lastEnd } = restarts;
  const journal = `journalctl -u ${unit}`;
  // A unit that waits has ended on its own, also if the journal does not say when it did before.
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

/** What systemd says about the restarts of a kubelet that runs. */
export interface RestartNote {
  /** `loop`: it ends again after each start. `note`: a single end, which is no problem. */
  readonly kind: 'loop' | 'warning' | 'note';
  readonly text: string;
}

/**
 * Describes the restarts of a kubelet that runs; undefined if there are none that matter. One restart is no problem: a person, or a
 * monitor of the node, may have killed it. Without the journal nobody knows whether systemd or a person has started it last.
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
