import { expect, test } from 'vitest';
import { readCheckpoint } from '../../src/kubelet/checkpoint.ts';
import { checkpointText, type WrittenPod, withMemory } from '../support/checkpoint-text.ts';

test('a checkpoint of 5 MB is read within two seconds', () => {
  const containers = Object.fromEntries(Array.from({ length: 20 }, (_, n) => [`container-${n}`, '64Mi']));
  const entries: Record<string, WrittenPod> = {};
  for (let n = 0; n < 3000; n += 1) entries[`pod-${n}`] = withMemory(containers);
  const text = checkpointText(entries);
  expect(text.length).toBeGreaterThan(5_000_000);
  const start = performance.now();
  const read = readCheckpoint(text);
  expect(performance.now() - start).toBeLessThan(2000);
  expect(read.kind === 'read' && read.pods.size).toBe(3000);
});
