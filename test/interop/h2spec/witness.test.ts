import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { H2specWitness } from './witness.ts';

const { signal } = new AbortController();
let logs: string;
let program: string;
beforeEach(() => {
  logs = mkdtempSync(join(tmpdir(), 'h2spec-'));
  program = join(logs, 'program');
});
afterEach(() => rmSync(logs, { recursive: true }));

/** An h2spec that runs a script. Its seventh argument is the report. */
function install(script: string): H2specWitness {
  writeFileSync(program, `#!/bin/sh\n${script}\n`);
  chmodSync(program, 0o755);
  return new H2specWitness(program);
}

// As the original, it exits with 1 if a case fails.
const REPORTING = `
echo "$*" >>"$(dirname "$7")/calls"
cat >"$7" <<END
<testsuites><testsuite name="4.1" package="http2/4.1" id="4.1" tests="2">
<testcase package="http2/4.1" classname="A" time="0.1"></testcase>
<testcase package="http2/4.1" classname="B" time="2.0"><error>Timeout</error></testcase>
</testsuite></testsuites>
END
exit 1`;

test('all cases run in one run of h2spec', async () => {
  const cases = await install(REPORTING).run({ port: 17, logs, signal });
  expect([...cases.values()].map(({ name, outcome }) => [name, outcome])).toEqual([
    ['http2/4.1 A', 'passed'],
    ['http2/4.1 B', 'failed'],
  ]);
  expect(readFileSync(join(logs, 'calls'), 'utf8')).toBe(
    `--host 127.0.0.1 --port 17 --strict --junit-report ${join(logs, 'h2spec.xml')}\n`,
  );
});

test('a chosen case runs with its section as an argument of h2spec', async () => {
  const cases = await install(REPORTING).run({ port: 17, logs, signal, only: ['http2/4.1 B'] });
  expect([...cases.keys()]).toEqual(['http2/4.1 B']);
  expect(readFileSync(join(logs, 'calls'), 'utf8')).toContain(' http2/4.1\n');
});

test('a run of h2spec without a report fails with the end of its output', async () => {
  const witness = install('echo "Error: connection refused"; exit 1');
  await expect(witness.run({ port: 17, logs, signal })).rejects.toThrow(
    'h2spec has no result: it exited with 1; the end of its output:\nError: connection refused',
  );
});

test('a truncated report of h2spec fails with the path of the report', async () => {
  const witness = install('echo "<testsuites>" >"$7"');
  await expect(witness.run({ port: 17, logs, signal })).rejects.toThrow(
    `${join(logs, 'h2spec.xml')}: h2spec's report has 0`,
  );
});
