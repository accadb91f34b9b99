import { messageText, printable, table } from './text.ts';
import type { Responses, WireChange, WirePod, WireRequester, WireState, WireSummary } from '../../api/wire/index.ts';

/** Texts about who asked for a resize, what it changes, and how it ended. */

const states: Readonly<Record<WireState, string>> = {
  STATE_UNSPECIFIED: '',
  PROPOSED: 'Proposed',
  IN_PROGRESS: 'InProgress',
  DEFERRED: 'Deferred',
  INFEASIBLE: 'Infeasible',
  COMPLETED: 'Completed',
  CANCELED: 'Canceled',
};

/** Returns the state of a resize as resizectl prints it. */
export const stateText = (state: WireState): string => states[state];

/** The beginning of an id, which commands accept in its place. */
export const shortResizeId = (id: string): string => id.slice(0, 8);

/** `kubelet (812)`, `crictl (4711)`, `API (resizectl, 4712)`, `annotation`. Empty: an older shim does not say. */
export function requesterText(requester: WireRequester | undefined): string {
  const { kind = 'KIND_UNSPECIFIED', process = '', pid = 0 } = requester ?? {};
  const name = printable(process);
  const known = [name, pid === 0 ? '' : String(pid)];
  const details = (label: string): string => {
    const rest = known.filter((text) => text !== '' && text !== label);
    return rest.length === 0 ? label : `${label} (${rest.join(', ')})`;
  };
  switch (kind) {
    case 'KIND_UNSPECIFIED':
      return '';
    case 'KUBELET':
      return details('kubelet');
    case 'CRI_CLIENT':
      return details(name === '' ? 'CRI client' : name);
    case 'API':
      return details('API');
    case 'ANNOTATION':
      return 'annotation';
    case 'SHIM':
      return 'shim';
  }
}

/** `container app memory 64Mi -> 80Mi, pod memory 128Mi -> 144Mi` */
export const changesText = (changes: readonly WireChange[] = []): string =>
  changes.map(({ value, from, to }) => printable(`${value} ${from === '' ? '?' : from} -> ${to}`)).join(', ');

type Outcome = NonNullable<Responses['ResizeEvent']['state']>;

/** `Infeasible (rolled back, 3 times): REASON: message` */
export function outcomeText(outcome: Outcome): string {
  return [stateWithDetails(outcome), ...whyOf(outcome)].join(': ');
}

/** `Infeasible (rolled back)  by crictl (4711)  container app memory 64Mi -> 16Mi: REASON: message` */
export function eventText(outcome: Outcome, requester: WireRequester | undefined): string {
  const isOpen = outcome.state === 'PROPOSED' || outcome.state === 'IN_PROGRESS';
  // At its start a resize of the API has not read the pod: its end has the values before.
  const known = (outcome.changes ?? []).filter(({ from }) => !isOpen || from !== '');
  const [by, changes] = [requesterText(requester), changesText(known)];
  const about = [stateWithDetails(outcome), by === '' ? '' : `by ${by}`, changes].filter((text) => text !== '');
  return [about.join('  '), ...whyOf(outcome)].join(': ');
}

/** `Infeasible (rolled back, 3 times)` */
export function stateWithDetails({
  state,
  rolled_back: isRolledBack = false,
  count = 1,
}: Pick<Outcome, 'state' | 'rolled_back' | 'count'>): string {
  const details = [isRolledBack ? 'rolled back' : '', count > 1 ? `${count} times` : ''].filter((text) => text !== '');
  return `${stateText(state)}${details.length === 0 ? '' : ` (${details.join(', ')})`}`;
}

const whyOf = ({ reason, message }: Outcome): readonly string[] =>
  [reason, message].filter((text) => text !== '').map(messageText);

/** The last resizes of a pod, the newest first. */
export function historyTable(history: WirePod['history'] = []): string {
  if (history.length === 0) return '';
  return table([['TIME', 'RESIZE', 'BY', 'CHANGES', 'OUTCOME'], ...history.map(historyRow)]);
}

const historyRow = (entry: WireSummary): string[] => [
  timeText(entry.changed),
  shortResizeId(entry.id),
  requesterText(entry.requester),
  changesText(entry.changes),
  outcomeText(entry),
];

/** `2026-11-24 22:51:03Z` */
export const timeText = (time: { readonly seconds: number } | undefined): string =>
  time === undefined ? '' : new Date(time.seconds * 1000).toISOString().replace('T', ' ').replace('.000', '');
