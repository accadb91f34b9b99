import type { Observation, Row } from './row.ts';

export interface RowResult {
  readonly row: Row;
  /** Whether the row states what this release of kubelet does. */
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

const outcomeOf = (faults: readonly string[], isKnown: boolean): string => {
  if (faults.length > 0) return 'FAILED';
  return isKnown ? 'ok    ' : 'same  ';
};

function count(direct: Observation, shim: Observation): string {
  const fields = Object.keys(direct);
  const equal = fields.filter((field) => direct[field] === shim[field]).length;
  return `${equal} of ${fields.length} fields equal`;
}
