import { expect, test } from 'vitest';
import { qosOfCgroup } from '../../../src/sandbox/pods/declare-pod.ts';

const UID = '3f2504e0-4f89-11d3-9a0c-0305e82c3301';
const unit = UID.replaceAll('-', '_');

test.each([
  [`/kubepods/pod${UID}`, 'Guaranteed'],
  [`/kubepods/burstable/pod${UID}`, 'Burstable'],
  [`/kubepods/besteffort/pod${UID}`, 'BestEffort'],
  [`kubepods-pod${unit}.slice`, 'Guaranteed'],
  [`kubepods-burstable-pod${unit}.slice`, 'Burstable'],
  [`kubepods-besteffort-pod${unit}.slice`, 'BestEffort'],
  // Not kubelet's, and no parent at all.
  ['/pods/web', undefined],
  ['web.slice', undefined],
  ['', undefined],
])('the QoS class of a pod in the cgroup %j is %s', (cgroupParent, expected) => {
  expect(qosOfCgroup({ cgroupParent })).toBe(expected);
});
