import { expect, test } from 'vitest';
import { placeOf, placeOfFunction } from './places.ts';

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
