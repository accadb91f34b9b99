import type { Outcome, Spec } from '../conformance/results/results.ts';

const START = /^=== RUN\s+(\S+)$/;
/** Marks the following lines as output of this test, which was started before. */
const GOES_ON = /^=== (?:NAME|CONT)\s+(\S+)$/;
const PAUSED = /^=== PAUSE\s/;
const END = /^\s*--- (PASS|FAIL|SKIP): (\S+) \((\d+(?:\.\d+)?)s\)$/;
const outcomes: Readonly<Record<string, Outcome>> = { PASS: 'passed', FAIL: 'failed', SKIP: 'skipped' };
const LONGEST_REASON = 20;

/**
 * Reads the output of a Go test program (`-test.v`). Returns each test and subtest by name. The reason of a test that
 * did not pass is its last output. A test without an end counts as failed, because the program ended before it.
 */
export function readGoTests(output: string): Map<string, Spec> {
  const specs = new Map<string, Spec>();
  const printed = new Map<string, string[]>();
  let current: string[] = [];
  for (const line of output.split('\n')) {
    const started = START.exec(line)?.[1];
    if (started !== undefined) {
      current = [];
      printed.set(started, current);
      continue;
    }
    const goesOn = GOES_ON.exec(line)?.[1];
    if (goesOn !== undefined) {
      current = printed.get(goesOn) ?? [];
      continue;
    }
    if (PAUSED.test(line)) continue;
    const [, result = '', name = '', seconds = '0'] = END.exec(line) ?? [];
    const outcome = outcomes[result];
    if (outcome === undefined) {
      current.push(line.trim());
      continue;
    }
    const reason = outcome === 'passed' ? '' : lastOf(printed.get(name) ?? []);
    specs.set(name, { name, outcome, reason, seconds: Number(seconds) });
    printed.delete(name);
    // The following lines belong to the enclosing test, or to the next one.
    current = printed.get(name.split('/').slice(0, -1).join('/')) ?? [];
  }
  for (const [name, lines] of printed) {
    specs.set(name, { name, outcome: 'failed', reason: `it did not end: ${lastOf(lines)}`, seconds: 0 });
  }
  return specs;
}

function lastOf(lines: readonly string[]): string {
  return lines
    .filter((line) => line !== '')
    .slice(-LONGEST_REASON)
    .join('\n');
}

const otherAddress =
  "the test computes the socket of containerd's shim from the address of the CRI socket, and containerd from its own";

/**
 * Tests that pass directly and may fail through the shim, with the reason. docs/compatibility.md lists them too. All
 * other differences fail the suite `cri-integration`.
 */
export const accepted: ReadonlyMap<string, string> = new Map(
  [
    'TestContainerIOLeakAfterStartFailed',
    'TestContainerTTYLeakAfterExit',
    'TestContainerTTYLeakAfterExit/ttyOnly',
    'TestContainerTTYLeakAfterExit/interactive',
    'TestIssue7496',
  ].map((name) => [name, otherAddress]),
);

/** If fewer tests than this pass directly, a full run says too little about the shim. 89 pass with containerd 2.3.7. */
export const leastPassedDirect = 75;
