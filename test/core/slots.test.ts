import { setImmediate as turn } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { PacedActions, Slots } from '../../src/core/slots.ts';

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

/** Actions that record their start, and end when a test requests it. */
class Actions {
  readonly begun: string[] = [];
  readonly end = new Map<string, () => void>();

  constructor(readonly paced: PacedActions) {}

  run(name: string): Promise<string> {
    return this.paced.run(async () => {
      this.begun.push(name);
      await new Promise<void>((resolve) => this.end.set(name, resolve));
      return name;
    });
  }
}

test('actions begin in order of arrival when an earlier action ends', async () => {
  const actions = new Actions(new PacedActions(2, 60_000));
  const [a] = ['a', 'b', 'c', 'd'].map((name) => actions.run(name));
  await turn();
  expect(actions.begun).toEqual(['a', 'b']);
  actions.end.get('b')?.();
  await turn();
  expect(actions.begun).toEqual(['a', 'b', 'c']);
  actions.end.get('a')?.();
  expect(await a).toBe('a');
  await turn();
  expect(actions.begun).toEqual(['a', 'b', 'c', 'd']);
});

test('an action that arrives while a waiting action gets its turn does not overtake it', async () => {
  const actions = new Actions(new PacedActions(1, 60_000));
  void actions.run('a');
  void actions.run('b');
  await turn();
  actions.end.get('a')?.();
  void actions.run('late');
  await turn();
  expect(actions.begun).toEqual(['a', 'b']);
  actions.end.get('b')?.();
  await turn();
  expect(actions.begun).toEqual(['a', 'b', 'late']);
});

test('a failed action rejects with its error, and the next action begins', async () => {
  const starts = new PacedActions(1, 60_000);
  const failed = starts.run(() => Promise.reject(new Error('no')));
  const next = starts.run(() => Promise.resolve('next'));
  await expect(failed).rejects.toThrow('no');
  expect(await next).toBe('next');
});

test('an action that hangs delays other actions for a limited time, and does not stop them', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  try {
    const actions = new Actions(new PacedActions(1, 200));
    for (const name of ['hangs', 'b', 'c']) void actions.run(name);
    await vi.advanceTimersByTimeAsync(199);
    expect(actions.begun).toEqual(['hangs']);
    await vi.advanceTimersByTimeAsync(1);
    expect(actions.begun).toEqual(['hangs', 'b']);
    // Its end does not count twice.
    actions.end.get('hangs')?.();
    await vi.advanceTimersByTimeAsync(199);
    expect(actions.begun).toEqual(['hangs', 'b']);
    await vi.advanceTimersByTimeAsync(1);
    expect(actions.begun).toEqual(['hangs', 'b', 'c']);
    await vi.advanceTimersByTimeAsync(200);
    // These actions still run, but no longer count.
    void actions.run('d');
    expect(actions.begun).toEqual(['hangs', 'b', 'c', 'd']);
    actions.end.get('d')?.();
    await vi.advanceTimersByTimeAsync(0);
    expect(vi.getTimerCount()).toBe(0);
  } finally {
    vi.useRealTimers();
  }
});
