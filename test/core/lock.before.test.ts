import { expect, test } from 'vitest';
import { KeyedLock } from '../../src/core/lock.ts';

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
