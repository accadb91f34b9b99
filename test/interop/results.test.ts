import { expect, test } from 'vitest';
import type { Outcome, Specs } from '../conformance/results/results.ts';
import { compare, judge } from '../conformance/results/results.ts';
import type { WitnessResult } from './results.ts';
import { countsOf, readJUnit, render, sectionOf } from './results.ts';

const report = (...suites: readonly string[]): string =>
  `<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n${suites.join('\n')}\n</testsuites>`;

// As h2spec 2.2.1 writes it.
const http2 = `  <testsuite name="5.1.1. Stream Identifiers" package="http2/5.1.1" id="5.1.1" tests="3" skipped="1" failures="0" errors="1">
    <testcase package="http2/5.1.1" classname="Sends even-numbered stream identifier" time="0.0012"></testcase>
    <testcase package="http2/5.1.1" classname="Sends &#34;a&#34; &amp; &lt;b&gt;&#xA;" time="2.0031">
      <error>GOAWAY Frame (Error Code: PROTOCOL_ERROR)
Connection closed
DATA Frame <length:0> & more</error>
    </testcase>
    <testcase package="http2/5.1.1" classname="Sends a third" time="0.0001">
      <skipped></skipped>
    </testcase>
  </testsuite>`;
const empty =
  '  <testsuite name="1. A" package="generic/1" id="1" tests="0" skipped="0" failures="0" errors="0"></testsuite>';

test("h2spec's report is read by section and title, with the reason of a failure", () => {
  const cases = readJUnit(report(empty, http2));
  expect([...cases.values()]).toEqual([
    { name: 'http2/5.1.1 Sends even-numbered stream identifier', outcome: 'passed', reason: '', seconds: 0.0012 },
    {
      name: 'http2/5.1.1 Sends "a" & <b>\n',
      outcome: 'failed',
      reason: 'GOAWAY Frame (Error Code: PROTOCOL_ERROR)\nConnection closed\nDATA Frame <length:0> & more',
      seconds: 2.0031,
    },
    { name: 'http2/5.1.1 Sends a third', outcome: 'skipped', reason: '', seconds: 0.0001 },
  ]);
});

test('the section of an h2spec case is read from its name', () => {
  expect(sectionOf('http2/5.1.1 Sends even-numbered stream identifier')).toBe('http2/5.1.1');
});

test('an h2spec report that is truncated, has no case, or has a case twice is rejected', () => {
  expect(() => readJUnit(report(http2.slice(0, http2.indexOf('Sends a third'))))).toThrow('has 2 cases, and counts 3');
  expect(() => readJUnit(report(empty))).toThrow('has 0 cases, and counts 0');
  expect(() => readJUnit(report(http2, http2))).toThrow('two cases of h2spec are named');
});

const cases = (outcomes: Readonly<Record<string, Outcome>>): Specs =>
  new Map(
    Object.entries(outcomes).map(([name, outcome]) => [
      name,
      { name, outcome, reason: `${name} ${outcome}`, seconds: 1 },
    ]),
  );

const direct = cases({
  same: 'passed',
  worse: 'passed',
  excused: 'passed',
  once: 'passed',
  both: 'failed',
  better: 'failed',
});
const through = cases({
  same: 'passed',
  worse: 'failed',
  excused: 'failed',
  once: 'failed',
  both: 'failed',
  better: 'passed',
});
const again = cases({ worse: 'failed', excused: 'failed', once: 'passed' });

function resultOf(faults: readonly string[] = []): WitnessResult {
  const comparison = compare(direct, through);
  return {
    witness: 'h2spec',
    comparison,
    verdict: judge(comparison.differences, direct, again),
    faults,
    seconds: 60,
  };
}
const accepted = new Map([['excused', 'a reason']]);

test('a case that is worse through the shim counts as failed, unless it is accepted or passes when run again', () => {
  expect(countsOf([resultOf()], accepted)).toEqual({ passed: 2, failed: 1 });
  expect(countsOf([resultOf()], new Map())).toEqual({ passed: 2, failed: 2 });
});

test('a program that ends before it is stopped counts as failed', () => {
  expect(countsOf([resultOf(['the shim ended by SIGSEGV'])], accepted)).toEqual({ passed: 2, failed: 2 });
});

test('the rendered result lists each kind of difference with its reason', () => {
  const text = render([resultOf(['the shim ended by SIGSEGV'])], accepted);
  expect(text.split('\n')).toEqual([
    'witness  cases  passed direct  passed through  failed both  worse through  accepted  time',
    'h2spec   6      4              2               1            1              1         60 s',
    '',
    'FAILED at the end:',
    '  the shim ended by SIGSEGV',
    'WORSE THROUGH THE SHIM:',
    '  worse',
    '      worse failed',
    'accepted: pass directly only:',
    '  excused',
    '      a reason',
    'differed once, and not when run again:',
    '  once',
    '      once failed',
    'outcomes, directly and through the shim:',
    '  failed, failed: 1',
    '  failed, passed: 1',
    '  passed, failed: 3',
    '  passed, passed: 1',
    'pass only through the shim:',
    '  better',
    'fail on both sides:',
    '  both',
  ]);
});
