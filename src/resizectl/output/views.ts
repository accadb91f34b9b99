import { exactSize, roundedSize } from '../../core/index.ts';
import type { Messages, State } from '../../server/api/messages.ts';
import { counted, durationText, fullName, limitText, messageText, printable, table } from './text.ts';

/** Tables and lines about pods and resizes. */

export const shortId = (id: string): string => id.slice(0, 13);

const headings = ['NAMESPACE', 'NAME', 'SANDBOX', 'CPU', 'MEMORY', 'USED', 'CONTAINERS', 'VOLUMES', 'RESIZE'];

/** Additional columns of `-o wide`: requests, and requester, time and changes of the last resize. */
const wideHeadings = [...headings, 'CPU REQUESTED', 'MEMORY REQUESTED', 'BY', 'WHEN', 'CHANGES'];

function wideRow(pod: Messages['Pod']): string[] {
  const { values, last_resize: last } = pod;
  const { cpu = '', memory = '' } = values?.pod.requests ?? {};
  const about = last === undefined ? ['', '', ''] : [requesterText(last.requester), timeText(last.changed)];
  return [...podRow(pod), cpu, limitText(memory), ...about, ...(last ? [changesText(last.changes)] : [])];
}

function podRow(pod: Messages['Pod']): string[] {
  const { identity, values, unreadable } = pod;
  const names = [identity.namespace, identity.name, shortId(identity.sandbox_id)];
  if (values === undefined) return [...names, '?', '?', '?', '?', '?', unreadable?.reason ?? ''];
  const { limits, memory_used_bytes: used } = values.pod;
  return [
    ...names,
    limits.cpu,
    limitText(limits.memory),
    roundedSize(used),
    String(values.containers.length),
    String(values.volumes.length),
    latestState(pod),
  ];
}

/**
 * Returns the latest state of a pod: the error of a pod that is not recovered, otherwise the state of a pending
 * decrease of kubelet, otherwise the state of the last resize through the shim.
 */
function latestState({ kubelet, last_resize: last, last_error: error }: Messages['Pod']): string {
  if (error !== undefined) return error.reason;
  const { state = 'STATE_UNSPECIFIED' } = kubelet ?? {};
  if (state !== 'STATE_UNSPECIFIED') return stateText(state);
  return last === undefined ? '' : stateText(last.state);
}

/** `resizectl get pods` */
export function podsTable(pods: readonly Messages['Pod'][], isWide = false, hasHeadings = true): string {
  if (pods.length === 0) return hasHeadings ? 'no pods on this node\n' : '';
  const rows = inOrder(pods).map(isWide ? wideRow : podRow);
  return table(hasHeadings ? [isWide ? wideHeadings : headings, ...rows] : rows);
}

/** Sorts pods by namespace, name and sandbox id. */
export const inOrder = (pods: readonly Messages['Pod'][]): readonly Messages['Pod'][] =>
  [...pods].sort((a, b) => (orderOf(a) < orderOf(b) ? -1 : 1));

const orderOf = ({ identity: { namespace, name, sandbox_id: id } }: Messages['Pod']): string =>
  [namespace, name, id].join('\0');

/** Formats the row of one pod without headings, for a continuous list. */
export const podLine = (pod: Messages['Pod'], isWide = false): string => table([isWide ? wideRow(pod) : podRow(pod)]);

const valueHeadings = ['', 'CPU', 'REQUESTED', 'MEMORY', 'REQUESTED', 'USED'];

function valueRow(name: string, { limits, requests, memory_used_bytes: used }: Messages['Values']): string[] {
  return [
    name,
    limits.cpu,
    requests.cpu,
    limitText(limits.memory),
    limitText(requests.memory),
    used > 0 ? roundedSize(used) : '',
  ];
}

function valuesTable({ pod, containers, volumes }: Messages['PodValues']): string {
  const limits = table([
    valueHeadings,
    valueRow('pod', pod),
    ...containers.map(({ name, values }) => valueRow(`container ${name}`, values)),
  ]);
  if (volumes.length === 0) return limits;
  const rows = volumes.map(({ name, size_bytes: size, used_bytes: used, policy }) => [
    `volume ${name}`,
    roundedSize(size),
    roundedSize(used),
    policy,
  ]);
  const remarks = volumes.flatMap(remarksOf).map((line) => `${printable(line)}\n`);
  return `${limits}\n${table([['', 'SIZE', 'USED', 'SIZED BY'], ...rows])}${remarks.join('')}`;
}

/** The warning and the last error of a volume. */
function remarksOf({ name, warning = '', last_error: error }: Messages['PodValues']['volumes'][number]): string[] {
  return [
    ...(warning === '' ? [] : [`volume ${name} ${warning}`]),
    ...(error === undefined ? [] : [`volume ${name}: ${error.reason}: ${error.message}`]),
  ];
}

/** `resizectl get pod` */
export function podText(pod: Messages['Pod']): string {
  const { values, unreadable } = pod;
  if (values === undefined)
    return `${fullName(pod.identity)}: ${unreadable?.reason ?? ''}: ${printable(unreadable?.message ?? '')}\n`;
  return valuesTable(values);
}

/** `resizectl describe pod` */
export function podDescription(pod: Messages['Pod']): string {
  const { identity, last_resize: last, last_error: error } = pod;
  const about = [
    ['Name:', identity.name],
    ['Namespace:', identity.namespace],
    ['UID:', identity.uid],
    ['Sandbox:', identity.sandbox_id],
    [
      'Last resize:',
      last === undefined ? 'none' : [last.id, byText(last), outcomeText(last)].filter((text) => text !== '').join(' '),
    ],
    ...(error === undefined ? [] : [['Not recovered:', `${error.reason}: ${error.message}`]]),
    ...decreaseRows(pod.kubelet),
  ];
  const known = [
    ['Pending kubelet resize', pod.kubelet?.values],
    ['Last requested', pod.desired],
    ['Last admitted', pod.allocated],
    ['Last applied', pod.actuated],
  ] as const;
  const further = known.flatMap(([title, values]) => {
    const rows = values === undefined ? [] : knownRows(values);
    return rows.length === 0 ? [] : [`${title}:\n${indented(table(rows))}`];
  });
  const resizes = historyTable(pod.history);
  const parts = [
    `Current values in the kernel:\n${indented(podText(pod))}`,
    ...declaredParts(pod.declared),
    ...further,
    ...(resizes === '' ? [] : [`Last resizes:\n${indented(resizes)}`]),
  ];
  return [table(about), ...parts].join('\n');
}

const byText = ({ requester }: NonNullable<Messages['Pod']['last_resize']>): string =>
  requester === undefined ? '' : `(by ${requesterText(requester)})`;

/** Lists all containers of the pod, running or not, and the source of the list. */
function declaredParts(declared: Messages['Pod']['declared']): string[] {
  if (declared === undefined || declared.containers.length === 0) return [];
  const rows = declared.containers.map(({ name, kind, state, limits }) => [
    `container ${name}`,
    kind,
    state,
    limits.cpu,
    limitText(limits.memory),
  ]);
  return [`Declared (from ${printable(declared.source)}):\n${indented(table([declaredHeadings, ...rows]))}`];
}

const declaredHeadings = ['', 'KIND', 'STATE', 'CPU', 'MEMORY'];

/** The memory decrease that kubelet has admitted but does not apply because usage is above the new limit. */
function decreaseRows(kubelet: Messages['Pod']['kubelet']): string[][] {
  const { state = 'STATE_UNSPECIFIED', reason = '', message = '' } = kubelet ?? {};
  if (state === 'STATE_UNSPECIFIED') return [];
  return [['Decrease:', [stateText(state), reason, messageText(message)].filter((text) => text !== '').join(': ')]];
}

const indented = (text: string): string => text.replace(/^(?=.)/gm, '  ');

/** Returns rows of the set values, exact for comparison. A value that was never requested is empty. */
function knownRows({ pod, containers, volumes }: Messages['PodValues']): string[][] {
  return [
    ...limitRows('pod', pod),
    ...containers.flatMap(({ name, values }) => limitRows(`container ${name}`, values)),
    ...volumes.map(({ name, size_bytes: size, policy }) => [
      `volume ${name}`,
      policy === '' ? exactSize(size) : policy,
    ]),
  ];
}

function limitRows(name: string, { limits, requests }: Messages['Values']): string[][] {
  const rows = [
    [`${name} cpu`, limits.cpu],
    [`${name} cpu request`, requests.cpu],
    [`${name} memory`, exactly(limits.memory)],
    [`${name} memory request`, exactly(requests.memory)],
  ];
  return rows.filter(([, value]) => value !== '');
}

/** The changes of a resize: one row per changed value. */
export function changesTable({ before, after }: Pick<Messages['Resize'], 'before' | 'after'>): string {
  if (before === undefined || after === undefined) return '';
  const then = new Map(knownRows(after).map(([name = '', value = '']) => [name, value]));
  const changed = knownRows(before).filter(([name = '', value]) => then.has(name) && then.get(name) !== value);
  const fresh = [...then].filter(([name]) => knownRows(before).every(([known]) => known !== name));
  const rows = [
    ...changed.map(([name = '', value = '']) => [name, value, then.get(name) ?? '']),
    ...fresh.map(([name, value]) => [name, '', value]),
  ];
  return rows.length === 0
    ? 'nothing changes: the pod already has these values\n'
    : table([['', 'BEFORE', 'AFTER'], ...rows]);
}

/** Formats a step with the name of the container instead of its id, and in larger units if they are exact. */
export function stepText({ kind, target, text }: Messages['Step']): string {
  const named = kind === 'CONTAINER' ? text.replace(/^container \S+/, `container ${target}`) : text;
  const inUnits = named.replace(
    /((?:^volume \S+|memory\.max) )(\d+|max) -> (\d+|max)/,
    (_, head: string, from: string, to: string) => `${head}${exactly(from)} -> ${exactly(to)}`,
  );
  return printable(inUnits);
}

const exactly = (limit: string): string => (/^\d+$/.test(limit) ? exactSize(Number(limit)) : limit);

/** The steps of a plan, or of a resize without events. */
export function stepsTable(steps: readonly Messages['Step'][], isPlan: boolean): string {
  return table(
    steps.map((step, index) => [`${index + 1}.`, stepText(step), ...(isPlan ? [] : [durationText(step.took)])]),
  );
}

/** One line that says that a dry run would be deferred, and why. */
export const deferralText = ({ pod, reason, message }: Messages['Resize']): string =>
  `a resize of ${fullName(pod)} would be deferred: ${whyText({ reason, message })}\n`;

const whyText = ({ reason, message }: Pick<Messages['Resize'], 'reason' | 'message'>): string =>
  [reason, message]
    .filter((text) => text !== '')
    .map(messageText)
    .join(': ');

/** One line with the state and the reason of a resize. */
export function endText(resize: Messages['Resize']): string {
  const { id, pod, state, reason, message, steps, tries, next_try: next } = resize;
  const why = whyText({ reason, message });
  const again =
    next === undefined
      ? ''
      : `; tried ${counted(tries, 'time')}, next at ${new Date(next.seconds * 1000).toISOString()}`;
  const what = state === 'COMPLETED' ? counted(steps.length, 'step') : why;
  return `resize ${id} of ${fullName(pod)}: ${stateWithDetails(resize)}${what === '' ? '' : `: ${what}`}${again}\n`;
}

/** Texts about the requester, the changes and the outcome of a resize. */

const states: Readonly<Record<State, string>> = {
  STATE_UNSPECIFIED: '',
  PROPOSED: 'Proposed',
  IN_PROGRESS: 'InProgress',
  DEFERRED: 'Deferred',
  INFEASIBLE: 'Infeasible',
  COMPLETED: 'Completed',
  CANCELED: 'Canceled',
};

/** Returns the state of a resize as resizectl prints it. */
const stateText = (state: State): string => states[state];

/** The beginning of an id, which commands accept in its place. */
export const shortResizeId = (id: string): string => id.slice(0, 8);

/** `kubelet (812)`, `crictl (4711)`, `API (resizectl, 4712)`, `annotation`. Empty: an older shim does not say. */
export function requesterText(requester: Messages['Requester'] | undefined): string {
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
    case 'SPEC':
      return 'spec';
    case 'SHIM':
      return 'shim';
  }
}

/** `container app memory 64Mi -> 80Mi, pod memory 128Mi -> 144Mi` */
const changesText = (changes: readonly Messages['ValueChange'][] = []): string =>
  changes.map(({ value, from, to }) => printable(`${value} ${from === '' ? '?' : from} -> ${to}`)).join(', ');

type Outcome = NonNullable<Messages['ResizeEvent']['state']>;

/** `Infeasible (rolled back, 3 times): REASON: message` */
function outcomeText(outcome: Outcome): string {
  return [stateWithDetails(outcome), ...whyOf(outcome)].join(': ');
}

/** `Infeasible (rolled back)  by crictl (4711)  container app memory 64Mi -> 16Mi: REASON: message` */
export function eventText(outcome: Outcome, requester: Messages['Requester'] | undefined): string {
  const isOpen = outcome.state === 'PROPOSED' || outcome.state === 'IN_PROGRESS';
  // The start event of an API resize lacks the values before, because the pod was not read yet. Its end event has them.
  const known = (outcome.changes ?? []).filter(({ from }) => !isOpen || from !== '');
  const [by, changes] = [requesterText(requester), changesText(known)];
  const about = [stateWithDetails(outcome), by === '' ? '' : `by ${by}`, changes].filter((text) => text !== '');
  return [about.join('  '), ...whyOf(outcome)].join(': ');
}

/** `Infeasible (rolled back, 3 times)` */
function stateWithDetails({
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
export function historyTable(history: Messages['Pod']['history'] = []): string {
  if (history.length === 0) return '';
  return table([['TIME', 'RESIZE', 'BY', 'CHANGES', 'OUTCOME'], ...history.map(historyRow)]);
}

const historyRow = (entry: Messages['ResizeSummary']): string[] => [
  timeText(entry.changed),
  shortResizeId(entry.id),
  requesterText(entry.requester),
  changesText(entry.changes),
  outcomeText(entry),
];

/** `2026-11-24 22:51:03Z` */
const timeText = (time: { readonly seconds: number } | undefined): string =>
  time === undefined ? '' : new Date(time.seconds * 1000).toISOString().replace('T', ' ').replace('.000', '');
