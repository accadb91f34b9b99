import { expect, test } from 'vitest';
import { Recorder } from './recorder.ts';

const place = { what: 'a file', when: 'resizes' };

test('groups calls to one place into a row, and starts again when the rows are taken', () => {
  const recorder = new Recorder();
  recorder.add('open', place, '/a', 1);
  recorder.add('read', place, '/a', 2);
  recorder.add('open', place, '/b', 3);
  expect(recorder.take()).toEqual({ rows: [{ ...place, calls: ['open', 'read'], durations: [1, 2, 3] }], unknown: [] });
  expect(recorder.take()).toEqual({ rows: [], unknown: [] });
});

test('names at most twenty calls to unknown places', () => {
  const recorder = new Recorder();
  for (let number = 0; number < 30; number += 1) recorder.add('stat', undefined, `/${number}`, 1);
  const { rows, unknown } = recorder.take();
  expect([rows, unknown.length, unknown[0]]).toEqual([[], 20, 'stat /0']);
});
