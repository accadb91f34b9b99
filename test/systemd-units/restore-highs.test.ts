import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { highsIn, leaveHighs, restoredHighs } from '../support/resize/left-highs.ts';

// Runs the script of ExecStopPost= of cri-resize-shim.service. test/e2e/systemd/bypass.test.ts runs it under systemd.

let folder: string;
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'restore-highs-'))));
afterEach(() => rmSync(folder, { recursive: true }));

/** Runs the script as systemd passes it to the shell. */
async function run(): Promise<void> {
  const unit = readFileSync('systemd/cri-resize-shim.service', 'utf8');
  const [, text = ''] = /^ExecStopPost=\+-\/bin\/sh -c '((?:[^']|\n)*)'$/m.exec(unit)!;
  const script = text
    .replaceAll('\\\n', ' ')
    .replaceAll('$$', '$')
    .replaceAll('%%', '%')
    .replaceAll('/var/lib/cri-resize-shim', join(folder, 'state'))
    .replaceAll('/sys/fs/cgroup', join(folder, 'cgroup'));
  await execa('/bin/sh', ['-c', script]);
}

test('only a memory.high that a killed shim has lowered temporarily is restored', async () => {
  leaveHighs(folder);
  await run();
  expect(highsIn(folder)).toEqual(restoredHighs);
});

test('restoring memory.high succeeds without records', async () => {
  await expect(run()).resolves.toBeUndefined();
});
