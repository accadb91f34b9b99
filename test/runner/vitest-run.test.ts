import { afterEach, expect, test } from 'vitest';
import { endingSignal, repeating } from './vitest-run.ts';

const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
const before = signals.map((signal) => [signal, process.listeners(signal)] as const);
afterEach(() => {
  for (const [signal, listeners] of before)
    for (const listener of process.listeners(signal)) if (!listeners.includes(listener)) process.off(signal, listener);
});

test('a command keeps its signal listeners after a signal, so that execa does not end the process first', () => {
  const counts = signals.map((signal) => process.listenerCount(signal) + 1);
  const ending = endingSignal();
  expect(ending.aborted).toBe(false);
  process.emit('SIGHUP');
  expect(ending.aborted).toBe(true);
  expect(signals.map((signal) => process.listenerCount(signal))).toEqual(counts);
});

test('a failure reports the npm test command that runs its file again on the same node', () => {
  const name = 'test/e2e/resize/resize.test.ts: a pod > is resized';
  expect(repeating(name, '--containerd 2.3 --runtime crun')).toBe(
    'npm test -- test/e2e/resize/resize.test.ts --containerd 2.3 --runtime crun',
  );
  expect(repeating('test/main.test.ts: a shim starts', '')).toBe('npm test -- test/main.test.ts');
  expect(repeating('test/crash/crash.test.ts: a kill', undefined)).toBeUndefined();
  expect(repeating('outside of all tests', '')).toBeUndefined();
});
