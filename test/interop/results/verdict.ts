import type { Comparison, Difference, Verdict } from '../../conformance/results/compare.ts';
import { table } from '../../conformance/results/table.ts';

/** The result of one witness. */
export interface WitnessResult {
  readonly witness: string;
  readonly comparison: Comparison;
  readonly verdict: Verdict;
  /** The problem at the end of the programs: a shim that crashed, for example. */
  readonly faults: readonly string[];
  readonly seconds: number;
}

/** The differences that nothing excuses. */
function unaccepted({ verdict }: WitnessResult, accepted: ReadonlyMap<string, string>): readonly Difference[] {
  return verdict.real.filter(({ name }) => !accepted.has(name));
}

/** Cases that are no worse through the shim, and those that are, with faults at the end. */
export function countsOf(
  results: readonly WitnessResult[],
  accepted: ReadonlyMap<string, string>,
): { readonly passed: number; readonly failed: number } {
  let [passed, failed] = [0, 0];
  for (const result of results) {
    passed += result.comparison.passedDirect - result.verdict.real.length;
    failed += unaccepted(result, accepted).length + result.faults.length;
  }
  return { passed, failed };
}

/** The results as text, without the line of counts. */
export function render(results: readonly WitnessResult[], accepted: ReadonlyMap<string, string>): string {
  const titles = [
    'witness',
    'cases',
    'passed direct',
    'passed through',
    'failed both',
    'worse through',
    'accepted',
    'time',
  ];
  const rows = results.map((result) => {
    const { witness, comparison, verdict, seconds } = result;
    const worse = unaccepted(result, accepted).length;
    return [
      ...[witness, comparison.specs, comparison.passedDirect, comparison.passedThrough, comparison.failedBoth.length],
      ...[worse, verdict.real.length - worse, `${Math.round(seconds)} s`],
    ];
  });
  const details = results.map((result) => detailsOf(result, accepted)).filter((text) => text !== '');
  return [table(titles, rows), ...details].join('\n\n');
}

function detailsOf(result: WitnessResult, accepted: ReadonlyMap<string, string>): string {
  const { comparison, verdict, faults } = result;
  const known = verdict.real.filter(({ name }) => accepted.has(name));
  const failed = comparison.failedBoth.map(({ name }) => name);
  return [
    ...block('FAILED at the end', faults),
    ...block('FAILED through the shim, and pass directly', unaccepted(result, accepted).map(withReason)),
    ...block(
      'accepted: pass directly only',
      known.map(({ name }) => withReason({ name, reason: accepted.get(name) ?? '' })),
    ),
    ...block('differed once, and passed through the shim when run again', verdict.flaky.map(withReason)),
    ...block('differed once, and did not pass directly when run again', verdict.unsteady.map(withReason)),
    ...block('pass only through the shim', comparison.onlyThrough),
    ...block('fail on both sides', failed),
  ].join('\n');
}

const block = (title: string, lines: readonly string[]): readonly string[] =>
  lines.length === 0 ? [] : [`${title}:`, ...lines.map((line) => `  ${line}`)];

const withReason = ({ name, reason }: { readonly name: string; readonly reason: string }): string =>
  `${name}\n      ${reason.trim().replaceAll('\n', '\n      ')}`;
