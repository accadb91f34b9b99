import { expect, test } from 'vitest';
import { type Log, noLog } from '../../../src/core/observe/interfaces.ts';
import { followResizes } from '../../../src/kubernetes/annotations/annotations.ts';
import type { Resize } from '../../../src/sandbox/queue/resize-table.ts';
import { eventually } from '../../support/fake-clock.ts';
import { ResizeQueue } from '../../support/resize/resize-queue.ts';

test('follows the states of a resize after an event of a request that is in no queue', async () => {
  const queue = new ResizeQueue();
  const reached: Resize[] = [];
  const warnings: string[] = [];
  const log: Log = { ...noLog, warn: (_, message) => void warnings.push(message) };
  const stop = new AbortController();
  const { resizes, clock } = queue;
  const ended = followResizes(
    { resizes, clock, random: () => 0.5, log },
    (_, resize) => void (resize && reached.push(resize)),
    stop.signal,
  );
  // The history contains this resize, and the queue does not.
  await expect(queue.resize('plenty')).rejects.toThrow('plenty');
  const answer = queue.resize('128Mi');
  (await queue.core.next()).succeed();
  const { id } = await answer;
  await eventually(() => reached.some(({ state }) => state === 'Completed'));
  expect(new Set(reached.map((resize) => resize.id))).toEqual(new Set([id]));
  expect(warnings).toEqual([]);
  stop.abort();
  await ended;
});
