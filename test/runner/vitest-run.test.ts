import { afterEach, expect, test } from 'vitest';
import { endingSignal } from './vitest-run.ts';

const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
const before = signals.map((signal) => [signal, process.listeners(signal)] as const);
afterEach(() => {
  for (const [signal, listeners] of before)
    for (const listener of process.listeners(signal)) if (!listeners.includes(listener)) process.off(signal, listener);
});

test('a command handles each signal until it has ended, so that execa does not end the process first', () => {
  const counts = signals.map((signal) => process.listenerCount(signal) + 1);
  const ending = endingSignal();
  expect(ending.aborted).toBe(false);
  process.emit('SIGHUP');
  expect(ending.aborted).toBe(true);
  expect(signals.map((signal) => process.listenerCount(signal))).toEqual(counts);
});
