import { markdownTable } from '../../runner/results-reporter.ts';
import type { Amounts, Resources } from '../table/pod.ts';
import { type Change, type Configuration, type Observation, observe, type Row, resize, running } from '../table/row.ts';
import {
  type AdmissionCase,
  type AdmissionGroup,
  admissionGroups,
  filler,
  fullNodeGroups,
  staticCpuGroups,
  type Verdict,
} from './cases.ts';

/** The rows of the admission table, the verdicts that a run has observed, and the table of the documentation. */

/** A row, and the case that it requests. */
export interface AdmissionRow extends Row {
  readonly case: AdmissionCase;
}

/** Requests the change of ResizePod first, and of the API server then: both get a pod with the same values. */
const rowOf = (group: AdmissionGroup, one: AdmissionCase): AdmissionRow => ({
  title: `${group.title}: ${one.title}`,
  case: one,
  pod: group.pod,
  steps: [
    ...(group.before ?? [running(...group.pod.containers.map(({ name }) => name))]),
    { kind: 'resizectl', changes: one.changes ?? changesOf(one.change) },
    observe('ResizePod'),
    resize(one.change),
    { kind: 'decided' },
    observe('Kubernetes'),
  ],
  expected: {},
});

const rowsOf = (groups: readonly AdmissionGroup[]): readonly AdmissionRow[] =>
  groups.flatMap((group) => group.cases.map((one) => rowOf(group, one)));

export interface AdmissionConfiguration extends Configuration {
  readonly rows: readonly AdmissionRow[];
}

export const admissionConfigurations: readonly AdmissionConfiguration[] = [
  { name: 'admission', kubelet: {}, usesApi: true, atOnce: 5, rows: rowsOf(admissionGroups) },
  { name: 'admission on a full node', kubelet: {}, usesApi: true, filler, atOnce: 1, rows: rowsOf(fullNodeGroups) },
  {
    name: 'admission with the static CPU policy',
    kernel: 'debian',
    // One of the two CPUs is left for pods.
    kubelet: { cpuManagerPolicy: 'static', reservedSystemCPUs: '0' },
    usesApi: true,
    atOnce: 1,
    rows: rowsOf(staticCpuGroups),
  },
];

/** Returns the change as resizectl writes it. */
function changesOf({ containers = {}, initContainers = {}, pod = {} }: Change): readonly string[] {
  const all: readonly (readonly [string, Resources])[] = [
    ...Object.entries(containers),
    ...Object.entries(initContainers),
    ['pod', pod],
  ];
  const texts = (prefix: string, amounts: Amounts = {}): readonly string[] =>
    Object.entries(amounts).map(([resource, value]) => `${prefix}${resource}=${value}`);
  return all.flatMap(([name, { limits, requests }]) => [
    ...texts(`${name}.`, limits),
    ...texts(`${name}.requests.`, requests),
  ]);
}

/** Returns what the API server and kubelet have answered. Undefined: the row has not come that far. */
export function verdictOf(seen: Observation): Verdict | undefined {
  const answer = seen['Kubernetes: answer'];
  if (answer === undefined || seen['Kubernetes: reached'] !== 'yes') return undefined;
  if (answer !== 'accepted') return 'rejected';
  const pending = seen['Kubernetes: condition PodResizePending'];
  if (pending !== undefined) return pending.includes(' Infeasible ') ? 'infeasible' : 'deferred';
  // kubelet admits a decrease below what is in use, and retries it until it fits.
  return seen['Kubernetes: condition PodResizeInProgress'] === undefined ? 'accepted' : 'deferred';
}

/** The files that kubelet writes too. */
const FILES = /(?:memory\.max|cpu\.max|cpu\.weight)$/;

/** Returns the faults of a row, one line each: other verdicts than the case states, and values that differ. */
export function admissionFaults(
  { case: { kubernetes, resizePod, values = {} } }: AdmissionRow,
  seen: Observation,
): readonly string[] {
  if (seen['error'] !== undefined) return [seen['error']];
  const [verdict, answer] = [verdictOf(seen), seen['ResizePod: answer']];
  const differs = (field: string): boolean => seen[`ResizePod: ${field}`] !== seen[`Kubernetes: ${field}`];
  const fields = Object.keys(seen)
    .filter((field) => field.startsWith('Kubernetes: '))
    .map((field) => field.slice('Kubernetes: '.length));
  const isDone = kubernetes === 'accepted' && resizePod === 'accepted';
  return [
    ...(seen['ResizePod: reached'] === 'yes' ? [] : [`before ResizePod: ${seen['ResizePod: reached']}`]),
    ...(answer === resizePod ? [] : [`ResizePod: ${answer}, expected ${resizePod}`]),
    ...(verdict === kubernetes ? [] : [`Kubernetes: ${verdict}, expected ${kubernetes}: ${whyOf(seen)}`]),
    ...(isDone ? fields.filter((field) => FILES.test(field) && differs(field) !== field in values) : []).map(
      (field) => `${field}: ${seen[`ResizePod: ${field}`]} by ResizePod, ${seen[`Kubernetes: ${field}`]} by kubelet`,
    ),
  ];
}

const whyOf = (seen: Observation): string =>
  ['reached', 'answer', 'condition PodResizePending', 'condition PodResizeInProgress']
    .flatMap((field) => seen[`Kubernetes: ${field}`] ?? [])
    .join('; ');

/** Returns the table of the documentation. */
export function admissionTable(): string {
  const rows = [...admissionGroups, ...fullNodeGroups, ...staticCpuGroups].flatMap(({ title, cases }) =>
    cases.map((one, index) => [
      index === 0 ? title : '',
      one.title,
      one.kubernetes,
      one.resizePod === 'accepted' ? 'accepted' : `\`${one.resizePod}\``,
      one.difference ?? [...new Set(Object.values(one.values ?? {}))].join('; '),
    ]),
  );
  return markdownTable([['pod', 'resize', 'Kubernetes', 'ResizePod', 'why they differ'], ...rows]);
}
