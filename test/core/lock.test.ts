import fc from 'fast-check';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { KeyedLock } from '../../src/core/lock.ts';

/** Returns a promise that a test resolves. */
function gate(): { readonly opened: Promise<void>; open(): void } {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { opened, open: () => open() };
}

const slot = (name: string, ...sets: string[]) => ({ name, sets: new Set(sets) });

test('KEP-1287: each pod has one transaction at a time, in order, and different pods run concurrently', async () => {
  const lock = new KeyedLock();
  const first = gate();
  const events: string[] = [];
  const action = (name: string, until?: Promise<void>) => async () => {
    events.push(`${name} begins`);
    await until;
    events.push(`${name} ends`);
  };
  const all = [lock.run('a', action('1', first.opened)), lock.run('a', action('2')), lock.run('b', action('3'))];
  await all[2];
  expect(events).toEqual(['1 begins', '3 begins', '3 ends']);
  expect(lock.waiting('a')).toBe(1);
  first.open();
  await Promise.all(all);
  expect(events.slice(3)).toEqual(['1 ends', '2 begins', '2 ends']);
  expect(lock.waiting('a')).toBe(0);
});

test('a failed action rejects for its own caller, and the next action runs', async () => {
  const lock = new KeyedLock();
  const failing = lock.run('a', () => Promise.reject(new Error('no')));
  const next = lock.run('a', () => Promise.resolve(2));
  await expect(failing).rejects.toThrow('no');
  expect(await next).toBe(2);
});

describe('actions that wait for one container', () => {
  test('KEP-1287: a request that waits for a container is replaced by a newer one that sets all its fields, and both get one outcome', async () => {
    const lock = new KeyedLock();
    const first = gate();
    const run: number[] = [];
    const ask = (value: number, until?: Promise<void>) =>
      lock.run(
        'pod',
        async () => {
          run.push(value);
          await until;
          return value;
        },
        slot('c1', 'memory'),
      );
    const outcomes = [ask(1, first.opened), ask(2), ask(3), ask(4)];
    first.open();
    expect(await Promise.all(outcomes)).toEqual([1, 4, 4, 4]);
    expect(run).toEqual([1, 4]);
  });

  test('all callers that wait for a container get the error if the newest action fails', async () => {
    const lock = new KeyedLock();
    const first = gate();
    const running = lock.run('pod', () => first.opened);
    const older = lock.run('pod', () => Promise.resolve(), slot('c1', 'memory'));
    const newer = lock.run('pod', () => Promise.reject(new Error('no')), slot('c1', 'memory', 'cpu'));
    first.open();
    await running;
    await expect(older).rejects.toThrow('no');
    await expect(newer).rejects.toThrow('no');
  });

  test('an older waiting action also runs if a newer one sets less, or sets another container', async () => {
    const lock = new KeyedLock();
    const first = gate();
    const run: string[] = [];
    const ask = (name: string, ...sets: string[]) =>
      lock.run('pod', () => Promise.resolve(run.push(`${name} ${sets.join()}`)), slot(name, ...sets));
    const running = lock.run('pod', () => first.opened);
    const all = [ask('c1', 'memory', 'cpu'), ask('c1', 'cpu'), ask('c2', 'memory', 'cpu')];
    first.open();
    await Promise.all([running, ...all]);
    expect(run).toEqual(['c1 memory,cpu', 'c1 cpu', 'c2 memory,cpu']);
  });
});

test('A6: a request for the whole pod that waits between two of a container keeps its place', async () => {
  const lock = new KeyedLock();
  const first = gate();
  const run: string[] = [];
  const running = lock.run('pod', () => first.opened);
  const ask = (text: string) => () => Promise.resolve(run.push(text));
  const all = [
    lock.run('pod', ask('container 64'), slot('c1', 'memory')),
    lock.run('pod', ask('pod 128')),
    lock.run('pod', ask('container 256'), slot('c1', 'memory')),
  ];
  first.open();
  await Promise.all([running, ...all]);
  expect(run).toEqual(['pod 128', 'container 256']);
});

test('every caller gets an outcome and the value that was requested last applies, for any order of requests', async () => {
  const request = fc.record({ container: fc.nat(2), memory: fc.boolean(), cpu: fc.boolean(), yields: fc.nat(2) });
  await fc.assert(
    fc.asyncProperty(fc.array(request, { maxLength: 30 }), async (requests) => {
      const lock = new KeyedLock();
      const has = new Map<string, number>();
      const wanted = new Map<string, number>();
      const outcomes: Promise<unknown>[] = [];
      for (const [index, { container, memory, cpu, yields }] of requests.entries()) {
        const fields = [...(memory ? ['memory'] : []), ...(cpu ? ['cpu'] : [])];
        const apply = async (): Promise<void> => {
          for (let turn = 0; turn < yields; turn += 1) await Promise.resolve();
          for (const field of fields) has.set(`${container} ${field}`, index);
        };
        for (const field of fields) wanted.set(`${container} ${field}`, index);
        outcomes.push(lock.run('pod', apply, slot(String(container), ...fields)));
        for (let turn = 0; turn < index % 3; turn += 1) await Promise.resolve();
      }
      await Promise.all(outcomes);
      expect(has).toEqual(wanted);
    }),
  );
});

describe('an action with a deadline', () => {
  afterEach(() => void vi.useRealTimers());
  const late = (): Error => new Error('too late');

  test('an action does not run if its deadline passes before its turn, and it leaves the queue', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    const lock = new KeyedLock();
    const first = gate();
    const running = lock.run('a', () => first.opened);
    let runs = 0;
    const action = (): Promise<number> => Promise.resolve((runs += 1));
    const waiting = lock.runBy('a', action, performance.now() + 50, late);
    expect(lock.waiting('a')).toBe(1);
    vi.advanceTimersByTime(50);
    await expect(waiting).rejects.toThrow('too late');
    await expect(lock.runBy('a', action, performance.now() - 1, late)).rejects.toThrow('too late');
    expect(lock.waiting('a')).toBe(0);
    first.open();
    await running;
    expect(await lock.runBy('a', action, Infinity, late)).toBe(1);
    expect(lock.isHeld('a')).toBe(false);
  });

  test('an action with a deadline may take longer once its turn has come', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    const lock = new KeyedLock();
    const [first, second] = [gate(), gate()];
    const running = lock.run('a', () => first.opened);
    const result = lock.runBy('a', () => second.opened.then(() => 'done'), performance.now() + 100, late);
    first.open();
    await running;
    vi.advanceTimersByTime(200);
    second.open();
    expect(await result).toBe('done');
  });
});

test('the actions for a key wait for the work that the owner of the lock must end first, which is requested once', async () => {
  const asked: string[] = [];
  let end = (): void => undefined;
  const lock = new KeyedLock();
  lock.beforeActions((key) => {
    asked.push(key);
    return key === 'a' ? new Promise((resolve) => (end = resolve)) : undefined;
  });
  const events: string[] = [];
  const run = (key: string, name: string) => lock.run(key, () => Promise.resolve(void events.push(name)));
  const all = [run('a', '1'), run('a', '2')];
  await run('b', '3');
  expect([events, lock.isHeld('a'), asked]).toEqual([['3'], true, ['a', 'b']]);
  end();
  await Promise.all(all);
  expect([events, asked]).toEqual([
    ['3', '1', '2'],
    ['a', 'b'],
  ]);
});

test('the first action begins at once if the owner of the lock has no work to end', () => {
  const lock = new KeyedLock();
  let began = false;
  void lock.run('a', () => Promise.resolve(void (began = true)));
  expect(began).toBe(true);
});
