import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { createCounters } from '../../src/core/observe/counters.ts';
import { noLog } from '../../src/core/observe/interfaces.ts';
import { KubeletFiles } from '../../src/kubelet/checkpoints.ts';
import { checkpointText, withMemory } from '../support/checkpoint-text.ts';

let parent: string;
let root: string;
let files: KubeletFiles;
beforeEach(() => {
  parent = mkdtempSync(join(tmpdir(), 'checkpoints-'));
  root = join(parent, 'lib/kubelet');
  files = new KubeletFiles({
    kubeletRoot: root,
    clock: systemClock,
    log: noLog,
    counters: createCounters(),
  });
});
afterEach(() => {
  files.close();
  rmSync(parent, { recursive: true });
});

/** Replaces the file as kubelet does: writes a temporary file and renames it. */
function replace(text: string): void {
  writeFileSync(join(root, '.1234567'), text, { mode: 0o600 });
  renameSync(join(root, '.1234567'), join(root, 'allocated_pods_state'));
}

test('KEP-1287: reading a checkpoint of 5 MB that is replaced continuously takes a bounded share of the time', async () => {
  mkdirSync(root, { recursive: true });
  files.begin();
  const containers = Object.fromEntries(Array.from({ length: 20 }, (_, n) => [`container-${n}`, '64Mi']));
  const pods = Object.fromEntries(Array.from({ length: 3000 }, (_, n) => [`pod-${n}`, withMemory(containers)]));
  const texts = [1, 2].map((n) => checkpointText({ ...pods, u: withMemory({ a: `${n}Mi` }) }));
  expect(texts[0]?.length).toBeGreaterThan(5_000_000);
  const start = performance.now();
  let asking = 0;
  for (let n = 0; performance.now() - start < 3000; n += 1) {
    replace(texts[n % 2] ?? '');
    const asked = performance.now();
    files.refresh();
    files.allocated('u');
    asking += performance.now() - asked;
    await delay(1);
  }
  // 200 ms at once, a tenth of the elapsed time, and the time of the last read.
  expect(asking).toBeLessThan(1500);
});
