import { expect, test } from 'vitest';
import { tableText } from './figures.ts';
import { placeOf, placeOfFunction } from './preload/places.ts';
import { Recorder } from './preload/recorder.ts';

test('the table lists the slowest rows first, and ends with a row for all calls', () => {
  const fast = { what: 'a', when: 'resizes', calls: ['open', 'read'], durations: [1, 2, 3] };
  const slow = { what: 'b', when: 'the start', calls: ['stat'], durations: [4] };
  expect(
    tableText({ rows: [fast, slow], unknown: [] })
      .split('\n')
      .slice(2),
  ).toEqual([
    '| b | the start | stat | 1 | 4.000 ms | 4.000 ms | 4.000 ms |',
    '| a | resizes | open, read | 3 | 2.000 ms | 3.000 ms | 3.000 ms |',
    '| all |  |  | 4 | 2.000 ms | 4.000 ms | 4.000 ms |',
  ]);
});

test.each([
  ['/sys/fs/cgroup/kubepods/pod1/memory.max', 'a file or folder of a cgroup'],
  ['/proc/self/fd/17', 'the path of an open file'],
  ['/proc/self/fd/17/volumes', "a folder in a volume's path"],
  ['/proc/self/fd', '`/proc/self/fd`'],
  ['/proc/812/mountinfo', '`/proc/PID/mountinfo`'],
  ['/var/lib/kubelet/allocated_pods_state', 'a state file of kubelet'],
  ['/var/lib/kubelet/pods', "kubelet's folder"],
  ['/run', 'a socket or its folder'],
])('classifies the path %s as %s', (path, what) => {
  expect(placeOf(path)?.what).toBe(what);
});

test('returns no place for a path or function that the docs do not name', () => {
  expect(placeOf('/etc/passwd')).toBeUndefined();
  expect(placeOfFunction('fork')).toBeUndefined();
  expect(placeOfFunction('flock')?.when).toBe('the start');
});

const place = { what: 'a file', when: 'resizes' };

test('groups calls to one place into a row, and starts again when the rows are taken', () => {
  const recorder = new Recorder();
  recorder.add('open', place, '/a', 1);
  recorder.add('read', place, '/a', 2);
  recorder.add('open', place, '/b', 3);
  expect(recorder.take()).toEqual({ rows: [{ ...place, calls: ['open', 'read'], durations: [1, 2, 3] }], unknown: [] });
  expect(recorder.take()).toEqual({ rows: [], unknown: [] });
});

test('reports at most 20 calls to paths that the docs do not name', () => {
  const recorder = new Recorder();
  for (let number = 0; number < 30; number += 1) recorder.add('stat', undefined, `/${number}`, 1);
  const { rows, unknown } = recorder.take();
  expect([rows, unknown.length, unknown[0]]).toEqual([[], 20, 'stat /0']);
});
