import { expect, test } from 'vitest';
import { Recorder, type State } from './recorder.ts';

/** Returns a recorder that reads these states in order, and then repeats the last one. */
const reading = (...states: readonly State[]): Recorder => {
  const left = [...states];
  return new Recorder(() => (left.length > 1 ? left.shift() : left[0])!);
};

test('a state is recorded once, and again after another one', () => {
  const [low, high] = [
    ['1', '1'],
    ['2', '2'],
  ];
  const recorder = reading(low, low, low, high, high, low, low);
  while (recorder.readings < 5) recorder.look();
  expect(recorder.seen).toEqual([low, high, low]);
  expect(recorder.readings).toBe(5);
});

test('values that never existed together are not recorded', () => {
  const [before, torn, after] = [
    ['64', '128'],
    ['64', '160'],
    ['32', '160'],
  ];
  const recorder = reading(before, before, torn, after, after);
  recorder.look();
  recorder.look();
  expect(recorder.seen).toEqual([before, after]);
});

test('a change that is reverted during a reading is not recorded', () => {
  const [before, torn] = [
    ['64', '128'],
    ['64', '160'],
  ];
  const recorder = reading(before, before, torn, before);
  recorder.look();
  recorder.look();
  expect(recorder.seen).toEqual([before]);
  expect(recorder.readings).toBe(2);
});
