import { nameOf } from './pods.ts';
import { counted, durationText, limitText, printable, sizeText, table, wholeSizeText } from './text.ts';
import type { WirePod, WirePodValues, WireResize, WireState, WireStep, WireValues } from '../../api/wire/index.ts';

/** What people see of pods and resizes. */

const states: Readonly<Record<WireState, string>> = {
  STATE_UNSPECIFIED: '',
  PROPOSED: 'Proposed',
  IN_PROGRESS: 'InProgress',
  DEFERRED: 'Deferred',
  INFEASIBLE: 'Infeasible',
  COMPLETED: 'Completed',
  CANCELED: 'Canceled',
};

export const stateText = (state: WireState): string => states[state];
export const shortId = (id: string): string => id.slice(0, 13);

const headings = ['NAMESPACE', 'NAME', 'SANDBOX', 'CPU', 'MEMORY', 'USED', 'CONTAINERS', 'VOLUMES', 'RESIZE'];

function podRow(pod: WirePod): string[] {
  const { identity, values, unreadable } = pod;
  const names = [identity.namespace, identity.name, shortId(identity.sandbox_id)];
  if (values === undefined) return [...names, '?', '?', '?', '?', '?', unreadable?.reason ?? ''];
  const { limits, memory_used_bytes: used } = values.pod;
  return [
    ...names,
    ...[limits.cpu, limitText(limits.memory), sizeText(used)],
    ...[String(values.containers.length), String(values.volumes.length)],
    latestState(pod),
  ];
}

/** Of what kubelet has admitted and does not get done, while there is such a thing; else of the last resize that went through the shim. */
function latestState({ kubelet, last_resize: last }: WirePod): string {
  const { state = 'STATE_UNSPECIFIED' } = kubelet ?? {};
  if (state !== 'STATE_UNSPECIFIED') return stateText(state);
  return last === undefined ? '' : stateText(last.state);
}

/** `resizectl get pods` */
export function podsTable(pods: readonly WirePod[]): string {
  if (pods.length === 0) return 'no pods on this node\n';
  const sorted = [...pods].sort((a, b) => (nameOf(a) < nameOf(b) ? -1 : 1));
  return table([headings, ...sorted.map(podRow)]);
}

/** A pod's line without the headings, for a list that goes on. */
export const podLine = (pod: WirePod): string => table([podRow(pod)]);

const valueHeadings = ['', 'CPU', 'REQUESTED', 'MEMORY', 'REQUESTED', 'USED'];

function valueRow(name: string, { limits, requests, memory_used_bytes: used }: WireValues): string[] {
  return [
    name,
    limits.cpu,
    requests.cpu,
    limitText(limits.memory),
    limitText(requests.memory),
    used > 0 ? sizeText(used) : '',
  ];
}

function valuesTable({ pod, containers, volumes }: WirePodValues): string {
  const limits = table([
    valueHeadings,
    valueRow('pod', pod),
    ...containers.map(({ name, values }) => valueRow(`container ${name}`, values)),
  ]);
  if (volumes.length === 0) return limits;
  const rows = volumes.map(({ name, size_bytes: size, used_bytes: used, policy }) => [
    `volume ${name}`,
    sizeText(size),
    sizeText(used),
    policy,
  ]);
  const remarks = volumes.flatMap(remarksOf).map((line) => `${printable(line)}\n`);
  return `${limits}\n${table([['', 'SIZE', 'USED', 'SIZED BY'], ...rows])}${remarks.join('')}`;
}

/** What there is to know of a volume beside its size. */
function remarksOf({ name, warning = '', last_error: error }: WirePodValues['volumes'][number]): string[] {
  return [
    ...(warning === '' ? [] : [`volume ${name} ${warning}`]),
    ...(error === undefined ? [] : [`volume ${name}: ${error.reason}: ${error.message}`]),
  ];
}

/** `resizectl get pod` */
export function podText(pod: WirePod): string {
  const { values, unreadable } = pod;
  if (values === undefined)
    return `${printable(nameOf(pod))}: ${unreadable?.reason ?? ''}: ${printable(unreadable?.message ?? '')}\n`;
  return valuesTable(values);
}

/** `resizectl describe pod` */
export function podDescription(pod: WirePod): string {
  const { identity, last_resize: last, last_error: error } = pod;
  const about = [
    ['Name:', identity.name],
    ['Namespace:', identity.namespace],
    ['UID:', identity.uid],
    ['Sandbox:', identity.sandbox_id],
    [
      'Last resize:',
      last === undefined
        ? 'none'
        : [`${last.id} ${stateText(last.state)}`, last.reason, last.message].filter(Boolean).join(': '),
    ],
    ...(error === undefined ? [] : [['Not mended:', `${error.reason}: ${error.message}`]]),
    ...decreaseRows(pod.kubelet),
  ];
  const known = [
    ['kubelet wants', pod.kubelet?.values],
    ['Asked for last', pod.desired],
    ['Admitted last', pod.allocated],
    ['Written last', pod.actuated],
  ] as const;
  const further = known.flatMap(([title, values]) => {
    const rows = values === undefined ? [] : knownRows(values);
    return rows.length === 0 ? [] : [`${title}:\n${indented(table(rows))}`];
  });
  return [table(about), `In the kernel now:\n${indented(podText(pod))}`, ...further].join('\n');
}

/** A memory limit that kubelet has admitted and does not lower, since more is in use. */
function decreaseRows(kubelet: WirePod['kubelet']): string[][] {
  const { state = 'STATE_UNSPECIFIED', reason = '', message = '' } = kubelet ?? {};
  if (state === 'STATE_UNSPECIFIED') return [];
  return [['Decrease:', [stateText(state), reason, message].filter((text) => text !== '').join(': ')]];
}

const indented = (text: string): string => text.replace(/^(?=.)/gm, '  ');

/** Rows of the values that are known: what nobody has asked for is empty. */
function knownRows({ pod, containers, volumes }: WirePodValues): string[][] {
  return [
    ...limitRows('pod', pod),
    ...containers.flatMap(({ name, values }) => limitRows(`container ${name}`, values)),
    ...volumes.map(({ name, size_bytes: size, policy }) => [`volume ${name}`, policy === '' ? sizeText(size) : policy]),
  ];
}

function limitRows(name: string, { limits, requests }: WireValues): string[][] {
  const rows = [
    [`${name} cpu`, limits.cpu],
    [`${name} cpu request`, requests.cpu],
    [`${name} memory`, limitText(limits.memory)],
    [`${name} memory request`, limitText(requests.memory)],
  ];
  return rows.filter(([, value]) => value !== '');
}

/** What a resize has changed: a row for each value that is another afterwards. */
export function changesTable({ before, after }: Pick<WireResize, 'before' | 'after'>): string {
  if (before === undefined || after === undefined) return '';
  const then = new Map(knownRows(after).map(([name = '', value = '']) => [name, value]));
  const changed = knownRows(before).filter(([name = '', value]) => then.has(name) && then.get(name) !== value);
  const fresh = [...then].filter(([name]) => knownRows(before).every(([known]) => known !== name));
  const rows = [
    ...changed.map(([name = '', value = '']) => [name, value, then.get(name) ?? '']),
    ...fresh.map(([name, value]) => [name, '', value]),
  ];
  return rows.length === 0 ? 'nothing changes: the pod has these values\n' : table([['', 'BEFORE', 'AFTER'], ...rows]);
}

/** A step as people read it: by the container's name, in larger units where these tell exactly. */
export function stepText({ kind, target, text }: WireStep): string {
  const named = kind === 'CONTAINER' ? text.replace(/^container \S+/, `container ${target}`) : text;
  const inUnits = named.replace(
    /((?:^volume \S+|memory\.max) )(\d+|max) -> (\d+|max)/,
    (_, head: string, from: string, to: string) => `${head}${exactly(from)} -> ${exactly(to)}`,
  );
  return printable(inUnits);
}

const exactly = (limit: string): string => (/^\d+$/.test(limit) ? wholeSizeText(Number(limit)) : limit);

/** The steps of a plan, or of a resize that has not been watched. */
export function stepsTable(steps: readonly WireStep[], isPlan: boolean): string {
  return table(
    steps.map((step, index) => [`${index + 1}.`, stepText(step), ...(isPlan ? [] : [durationText(step.took)])]),
  );
}

/** How a resize has ended, in a line. */
export function endText({ id, pod, state, reason, message, steps, tries, next_try: next }: WireResize): string {
  const why = [reason, message]
    .filter((text) => text !== '')
    .map(printable)
    .join(': ');
  const again =
    next === undefined
      ? ''
      : `; tried ${counted(tries, 'time')}, next at ${new Date(next.seconds * 1000).toISOString()}`;
  const what = state === 'COMPLETED' ? counted(steps.length, 'step') : why;
  return `resize ${id} of ${printable(`${pod.namespace}/${pod.name}`)}: ${stateText(state)}${what === '' ? '' : `: ${what}`}${again}\n`;
}
