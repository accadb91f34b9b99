import { markdownTable } from '../../runner/results-reporter.ts';
import type { KubernetesRelease } from '../programs.ts';
import type { Observation, Row, Side } from './row.ts';

const sides: readonly (readonly [Side, string])[] = [
  ['direct', 'direct'],
  ['shim', 'through the shim'],
];

/**
 * Returns the faults of a row, one line for each field; empty if the row passes.
 * @param isKnown whether the row applies to this release of kubelet. If not, the sides are only compared
 */
export function faultsOf(row: Row, direct: Observation, shim: Observation, isKnown = true): readonly string[] {
  const bySide = { direct, shim };
  const errors = sides.flatMap(([side, where]) => {
    const { error } = bySide[side];
    return error === undefined ? [] : [`${where}: ${error}`];
  });
  if (errors.length > 0) return errors;
  const compared = differences(row, direct, shim);
  return isKnown ? [...compared, ...timedOut(direct, shim), ...unexpected(row, bySide)] : compared;
}

function differences({ wanted = [], ignored = {} }: Row, direct: Observation, shim: Observation): readonly string[] {
  const isExcepted = (field: string): boolean =>
    Object.keys(ignored).some((each) => (each.endsWith('*') ? field.startsWith(each.slice(0, -1)) : field === each)) ||
    wanted.some((difference) => difference.field === field);
  return (
    [...new Set([...Object.keys(direct), ...Object.keys(shim)])]
      .filter((field) => !isExcepted(field) && direct[field] !== shim[field])
      // After a wait that timed out, a side has no more observations.
      .filter((field) => reached(labelOf(field)) in direct && reached(labelOf(field)) in shim)
      .map((field) => `${field}: ${shown(direct[field])} direct, ${shown(shim[field])} through the shim`)
  );
}

const timedOut = (direct: Observation, shim: Observation): readonly string[] =>
  Object.entries(direct)
    .filter(([field, value]) => field === reached(labelOf(field)) && value !== 'yes' && shim[field] === value)
    .map(([field, value]) => `${field}: ${value} on both sides`);

/** Returns the fields whose value differs from the row, on each side that was observed at that moment. */
function unexpected({ expected, wanted = [] }: Row, bySide: Readonly<Record<Side, Observation>>): readonly string[] {
  const stated = [
    ...Object.entries(expected).map(([field, value]) => ({ field, direct: value, shim: value, reason: undefined })),
    ...wanted,
  ];
  return stated.flatMap((one) =>
    sides
      .filter(
        ([side]) =>
          reached(labelOf(one.field)) in bySide[side] && !allowed(one[side]).includes(bySide[side][one.field]),
      )
      .map(([side, where]) => {
        const reason = one.reason === undefined ? '' : ` (${one.reason})`;
        return `${one.field}: ${shown(bySide[side][one.field])} ${where}, expected ${allowed(one[side]).map(shown).join(' or ')}${reason}`;
      }),
  );
}

const allowed = (value: string | readonly string[] | undefined): readonly (string | undefined)[] => [value].flat();
const labelOf = (field: string): string => field.slice(0, field.indexOf(':'));
const reached = (label: string): string => `${label}: reached`;
const shown = (value: string | undefined): string => value ?? '(absent)';

export interface RowResult {
  readonly row: Row;
  /** Whether the row applies to this release of kubelet. */
  readonly isKnown: boolean;
  readonly direct: Observation;
  readonly shim: Observation;
  readonly faults: readonly string[];
}

/** Returns the table of a configuration as text: a line for each row, followed by its differences. */
export function tableText(configuration: string, results: readonly RowResult[]): string {
  const lines = results.flatMap(({ row, isKnown, direct, shim, faults }) => [
    `${outcomeOf(faults, isKnown)}  ${row.title}: ${count(direct, shim)}`,
    ...(row.wanted ?? [])
      .filter(({ field }) => direct[field] !== undefined || shim[field] !== undefined)
      .map(({ field, reason }) => `          wanted: ${field}: ${direct[field]} -> ${shim[field]} (${reason})`),
    ...faults.map((fault) => `          ${fault}`),
  ]);
  return `\nkubelet ${configuration}, direct against through the shim\n${lines.join('\n')}\n\n`;
}

/** Returns the table of volumes for the documentation: the order of the changes on both sides, and why they differ. */
export function volumesText(results: readonly Pick<RowResult, 'row' | 'direct' | 'shim'>[]): string {
  const ordersIn = (seen: Observation): string =>
    Object.entries(seen)
      .filter(([field]) => field.endsWith(': order'))
      .map(([, order]) => order)
      .join('; ') || 'none';
  const rows = results.map(({ row, direct, shim }) => [
    row.title.replace(/^KEP-6030: /, ''),
    ordersIn(direct),
    ordersIn(shim) === ordersIn(direct) ? 'the same' : ordersIn(shim),
    row.wanted?.[0]?.reason ?? '',
  ]);
  return markdownTable([['case', 'changes by kubelet', 'changes by the shim', 'why they differ'], ...rows]);
}

const outcomeOf = (faults: readonly string[], isKnown: boolean): string => {
  if (faults.length > 0) return 'FAILED';
  return isKnown ? 'ok    ' : 'same  ';
};

function count(direct: Observation, shim: Observation): string {
  const fields = Object.keys(direct);
  const equal = fields.filter((field) => direct[field] === shim[field]).length;
  return `${equal} of ${fields.length} fields equal`;
}

/** Whether a release is this release or newer. Default: the first release that rows describe. */
export const isSince = (kubernetes: KubernetesRelease, since: KubernetesRelease = '1.36'): boolean =>
  minor(kubernetes) >= minor(since);

const minor = (kubernetes: KubernetesRelease): number => Number(kubernetes.split('.')[1]);
