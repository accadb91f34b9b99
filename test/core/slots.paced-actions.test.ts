import { setImmediate as turn } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { PacedActions } from '../../src/core/slots.ts';

/** Actions that note when they begin, and end when the test says so. */
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
    // All of them still run, and count no more.
    void actions.run('d');
    expect(actions.begun).toEqual(['hangs', 'b', 'c', 'd']);
    actions.end.get('d')?.();
    await vi.advanceTimersByTimeAsync(0);
    expect(vi.getTimerCount()).toBe(0);
  } finally {
    vi.useRealTimers();
  }
});
