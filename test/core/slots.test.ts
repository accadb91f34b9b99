import { expect, test } from 'vitest';
import { Slots } from '../../src/core/slots.ts';

const forever = new AbortController().signal;
const turns = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test('runs a limited number of actions concurrently, in order, also after failures', async () => {
  const slots = new Slots(2);
  const started: number[] = [];
  const ends: (() => void)[] = [];
  const jobs = [0, 1, 2, 3].map((job) =>
    slots.run(async () => {
      started.push(job);
      await new Promise<void>((resolve) => ends.push(resolve));
      if (job === 0) throw new Error('failed');
      return job;
    }),
  );
  const results = Promise.allSettled(jobs);
  await turns();
  expect(started).toEqual([0, 1]);
  ends[0]?.();
  await turns();
  expect(started).toEqual([0, 1, 2]);
  for (let job = 1; job < 4; job += 1) {
    ends[job]?.();
    await turns();
  }
  expect((await results).map(({ status }) => status)).toEqual(['rejected', 'fulfilled', 'fulfilled', 'fulfilled']);
});

test('an action that leaves the queue does not run, and takes no slot', async () => {
  const slots = new Slots(1);
  let end = (): void => undefined;
  const first = slots.run(() => new Promise<void>((resolve) => (end = resolve)), forever);
  const leaving = new AbortController();
  let ran = false;
  const second = slots.run(() => Promise.resolve((ran = true)), leaving.signal);
  const third = slots.run(() => Promise.resolve('third'), forever);
  leaving.abort(new Error('left'));
  await expect(second).rejects.toThrow('left');
  await expect(slots.run(() => Promise.resolve(), leaving.signal)).rejects.toThrow('left');
  end();
  await first;
  expect(await third).toBe('third');
  expect(ran).toBe(false);
  expect(await slots.run(() => Promise.resolve('free'), forever)).toBe('free');
});
