import type { Outcome, Spec } from '../../conformance/results/report.ts';

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
