import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, expect, test } from 'vitest';

// Runs the script of ExecStopPost= in cri-resize-shim-takeover.service with a systemctl that only notes its arguments.
// test/e2e/systemd/bypass.test.ts kills the unit under systemd.

const UNIT = readFileSync('systemd/cri-resize-shim-takeover.service', 'utf8');
const STOPS = '--no-block stop cri-resize-shim-bypass.service';
const RESTARTS = '--no-block restart cri-resize-shim-bypass.service';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'takeover-'));
  for (const name of ['bin', 'proc/7']) mkdirSync(join(folder, name), { recursive: true });
});
afterEach(() => rmSync(folder, { recursive: true }));

/** The script as systemd passes it to the shell. */
function script(): string {
  const [, text] = /^ExecStopPost=-\/bin\/sh -c '((?:[^']|\n)*)'$/m.exec(UNIT)!;
  return text!
    .replaceAll('\\\n', ' ')
    .replaceAll('$$', () => '$')
    .replaceAll('%%', '%');
}

interface End {
  /** As systemd.exec(5) has them. */
  readonly result: string;
  readonly status: string;
  readonly isShimActive?: boolean;
  /** How many descriptors the bypass may have open. */
  readonly descriptors?: number;
}

/** Returns what the script has systemd do. */
async function after({ result, status, isShimActive = true, descriptors = 0 }: End): Promise<string> {
  const log = join(folder, 'log');
  writeFileSync(log, '');
  writeFileSync(
    join(folder, 'proc/7/limits'),
    `Max open files            ${descriptors}                65536     files\n`,
  );
  const answers = `case "$*" in *is-active*) exit ${isShimActive ? 0 : 3} ;; show*) echo 7 ;; *) echo "$*" >>${log} ;; esac`;
  writeFileSync(join(folder, 'bin/systemctl'), `#!/bin/sh\n${answers}\n`);
  chmodSync(join(folder, 'bin/systemctl'), 0o755);
  const env = { PATH: `${join(folder, 'bin')}:${process.env['PATH']}`, SERVICE_RESULT: result, EXIT_STATUS: status };
  await execa('/bin/sh', ['-c', script().replaceAll('/proc/', `${folder}/proc/`)], { env, reject: false });
  return readFileSync(log, 'utf8').trim();
}

test.each([
  ['success', '0'],
  ['exit-code', '1'],
  // Calls that have run for too long are cut off.
  ['timeout', 'KILL'],
  // It would crash again and again.
  ['core-dump', 'SEGV'],
  // Stopped before the program knows its signals. systemd does not start it again.
  ['signal', 'TERM'],
])('a takeover that has ended (%s, %s) ends the bypass', async (result, status) => {
  expect(await after({ result, status })).toBe(STOPS);
});

test.each(['signal', 'oom-kill'])(
  'a takeover that was killed (%s) cuts off no call, and starts again',
  async (result) => {
    expect(await after({ result, status: 'KILL' })).toBe('');
    expect(UNIT).toMatch(/^Restart=on-abnormal$/m);
  },
);

test('a takeover whose shim has failed leaves a bypass that accepts clients', async () => {
  expect(await after({ result: 'exit-code', status: '3', isShimActive: false })).toBe('');
  expect(await after({ result: 'signal', status: 'KILL', isShimActive: false })).toBe(RESTARTS);
  expect(await after({ result: 'signal', status: 'KILL', isShimActive: false, descriptors: 65_536 })).toBe('');
});
