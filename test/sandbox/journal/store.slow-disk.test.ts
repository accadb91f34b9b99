import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { LONGEST_CHANGE_MS } from '../../../src/sandbox/journal/availability.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { numbered } from '../../support/journal/numbered.ts';
import { TestFolder, uid } from '../../support/journal/test-folder.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

/** Ends the writes that run on the disk, the oldest first. */
const running: (() => void)[] = [];
vi.mock('../../../src/sandbox/journal/files.ts', async (original) => ({
  ...(await original<object>()),
  replaceFile: () => new Promise<void>((resolve) => void running.push(resolve)),
}));

let state: TestFolder;
beforeEach(() => {
  state = new TestFolder();
});
afterEach(() => {
  running.length = 0;
  return state.remove();
});

const PODS = 12;

test('a slow disk stores the records of many pods, one after the other, without an error', async () => {
  const clock = new FakeClock();
  const journal = await state.open({ clock });
  const ended: number[] = [];
  const writes = Array.from({ length: PODS }, (_, pod) =>
    journal.write(numbered(1, uid(pod))).then(() => ended.push(pod)),
  );
  for (let count = 1; count <= PODS; count += 1) {
    await expect.poll(() => running.length, LONG_WAIT).toBeGreaterThan(0);
    clock.pass(LONGEST_CHANGE_MS / 2 - 1);
    running.shift()?.();
    await expect.poll(() => ended.length, LONG_WAIT).toBe(count);
  }
  await Promise.all(writes);
  expect(journal.readiness).toEqual({ ready: true });
});

test('a disk that stops responding causes the writes of all pods to be rejected, including queued ones', async () => {
  const clock = new FakeClock();
  const journal = await state.open({ clock });
  const writes = Array.from({ length: PODS }, (_, pod) => journal.write(numbered(1, uid(pod))));
  const results = Promise.allSettled(writes);
  await expect.poll(() => running.length, LONG_WAIT).toBe(2);
  clock.pass(LONGEST_CHANGE_MS);
  for (const result of await results)
    expect(result).toMatchObject({ status: 'rejected', reason: { reason: 'JOURNAL_UNAVAILABLE' } });
  expect(journal.readiness.ready).toBe(false);
});
