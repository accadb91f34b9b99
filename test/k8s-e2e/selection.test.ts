import { expect, test } from 'vitest';
import { focusOf, type GroupName, groupNames, groups } from './selection.ts';

const matching = (name: string): readonly GroupName[] =>
  groupNames.filter((group) => new RegExp(groups.get(group) ?? '^$').test(name));

test.each<[string, GroupName]>([
  ['[sig-node] Pod InPlace Resize Container burstable pods - extended resize with equivalents', 'resize'],
  ['[sig-node] [Serial] Pod InPlace Resize Container (deferred-resizes) pod-resize-retry-deferred-test-1', 'resize'],
  [
    '[sig-node] PLR Pod InPlace Resize [FeatureGate:X] [Beta] decrease pod-level memory limit below usage',
    'pod-level-resize',
  ],
  ['[sig-storage] EmptyDir volumes should support (non-root,0777,tmpfs) [LinuxOnly] [Conformance]', 'memory-volumes'],
  [
    '[sig-node] Container Lifecycle Hook when create a pod with lifecycle hook should execute poststart exec',
    'lifecycle',
  ],
  ['[sig-node] Probing container should be restarted with a exec "cat /tmp/health" liveness probe', 'probes'],
  ['[sig-node] InitContainer [NodeConformance] should invoke init containers on a RestartAlways pod', 'sidecars'],
  ['[sig-node] Pods should support remote command execution over websockets', 'exec'],
  ['[sig-node] Pods should support retrieving logs from the container over websockets', 'logs'],
])('%s is a spec of one group: %s', (name, group) => {
  expect(matching(name)).toEqual([group]);
});

test('specs of other volumes, of services and of other parts of pods belong to no group', () => {
  expect(matching('[sig-storage] EmptyDir volumes should support (root,0644,default) [LinuxOnly]')).toEqual([]);
  expect(
    matching('[sig-network] Networking Granular Checks: Pods should function for intra-pod communication'),
  ).toEqual([]);
  expect(matching('[sig-node] Security Context when creating containers with AllowPrivilegeEscalation')).toEqual([]);
});

test('the focus of several groups matches the specs of each, and no others', () => {
  const focus = new RegExp(focusOf(['exec', 'memory-volumes']));
  expect(focus.test('[sig-node] Pods should support remote command execution over websockets')).toBe(true);
  expect(focus.test('[sig-storage] EmptyDir volumes volume on tmpfs should have the correct mode')).toBe(true);
  expect(focus.test('[sig-node] Pods should support retrieving logs from the container over websockets')).toBe(false);
});
