import {
  type Comparison,
  type Difference,
  goodOf,
  type Outcome,
  pairLines,
  type Spec,
  type Verdict,
} from '../conformance/results/results.ts';
import { table } from '../conformance/results/table.ts';

/** The result of one witness. */
export interface WitnessResult {
  readonly witness: string;
  readonly comparison: Comparison;
  readonly verdict: Verdict;
  /** The problem at the end of the programs: a shim that crashed, for example. */
  readonly faults: readonly string[];
  readonly seconds: number;
}

/** Returns the differences that the list of accepted cases does not contain. */
function unaccepted({ verdict }: WitnessResult, accepted: ReadonlyMap<string, string>): readonly Difference[] {
  return verdict.real.filter(({ name }) => !accepted.has(name));
}

/** Returns the number of cases that are no worse through the shim, and of those that are, plus faults at the end. */
export function countsOf(
  results: readonly WitnessResult[],
  accepted: ReadonlyMap<string, string>,
): { readonly passed: number; readonly failed: number } {
  let [passed, failed] = [0, 0];
  for (const result of results) {
    passed += goodOf(result.comparison, result.verdict);
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
    ...block('WORSE THROUGH THE SHIM', unaccepted(result, accepted).map(withReason)),
    ...block(
      'accepted: pass directly only',
      known.map(({ name }) => withReason({ name, reason: accepted.get(name) ?? '' })),
    ),
    ...block('differed once, and not when run again', verdict.flaky.map(withReason)),
    ...block('differed once, and did not pass directly when run again', verdict.unsteady.map(withReason)),
    ...block('outcomes, directly and through the shim', pairLines(comparison)),
    ...block('pass only through the shim', comparison.onlyThrough),
    ...block('fail on both sides', failed),
  ].join('\n');
}

const block = (title: string, lines: readonly string[]): readonly string[] =>
  lines.length === 0 ? [] : [`${title}:`, ...lines.map((line) => `  ${line}`)];

const withReason = ({ name, reason }: { readonly name: string; readonly reason: string }): string =>
  `${name}\n      ${reason.trim().replaceAll('\n', '\n      ')}`;

/**
 * Cases that pass directly and may fail through the shim, with the reason. docs/compatibility.md lists them too, in a
 * table. All other differences fail the suite `interop`.
 */
export const accepted: ReadonlyMap<string, string> = new Map([
  [
    'http2/5.1.2 Sends HEADERS frames that causes their advertised concurrent stream limit to be exceeded',
    'h2spec skips the case directly, because grpc-go announces no limit of streams. The shim announces 1,024. The calls of the case end at once, so the limit is not reached',
  ],
]);

const CASE = /<testcase package="([^"]*)" classname="([^"]*)" time="([^"]*)">([^]*?)<\/testcase>/g;
const PROBLEM = /<(?:failure|error)>([^]*)<\/(?:failure|error)>/;

/**
 * Returns the cases of h2spec's JUnit report by name: `http2/5.1.1 Sends even-numbered stream identifier`. h2spec
 * writes the text of failures without escaping it, which a parser of XML would reject.
 * @throws Error if cases are missing or have the same name
 */
export function readJUnit(xml: string): Map<string, Spec> {
  const cases = new Map<string, Spec>();
  for (const [, group = '', title = '', time, content = ''] of xml.matchAll(CASE)) {
    const name = `${unescaped(group)} ${unescaped(title)}`;
    if (cases.has(name)) throw new Error(`two cases of h2spec are named "${name}"`);
    cases.set(name, { name, ...outcomeOf(content), seconds: Number(time) });
  }
  const counted = [...xml.matchAll(/<testsuite [^>]*? tests="(\d+)"/g)].reduce(
    (sum, [, tests]) => sum + Number(tests),
    0,
  );
  if (counted !== cases.size || counted === 0) {
    throw new Error(`h2spec's report has ${cases.size} cases, and counts ${counted}`);
  }
  return cases;
}

/** The section of a case, as h2spec takes it in its arguments. */
export const sectionOf = (name: string): string => name.split(' ', 1).join();

function outcomeOf(content: string): { readonly outcome: Outcome; readonly reason: string } {
  if (content.includes('<skipped>')) return { outcome: 'skipped', reason: '' };
  const problem = PROBLEM.exec(content)?.[1];
  return problem === undefined ? { outcome: 'passed', reason: '' } : { outcome: 'failed', reason: problem.trim() };
}

const named: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" };

/** Attributes are escaped as Go does it: `&#34;`, `&#xA;`, `&amp;`. */
function unescaped(text: string): string {
  return text.replaceAll(
    /&(?:#x([\da-fA-F]+)|#(\d+)|(\w+));/g,
    (whole: string, hex?: string, digits?: string, name?: string) => {
      if (hex !== undefined) return String.fromCodePoint(parseInt(hex, 16));
      if (digits !== undefined) return String.fromCodePoint(Number(digits));
      return named[name ?? ''] ?? whole;
    },
  );
}
