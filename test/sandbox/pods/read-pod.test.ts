import { afterEach, beforeEach, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { DeclaredPod } from '../../../src/sandbox/pods/declared-pod.ts';
import { readPod } from '../../../src/sandbox/pods/read-pod.ts';
import { containerId, SANDBOX } from '../../support/fake-runtime.ts';
import { mi } from '../../support/quantities/mebibytes.ts';
import { desired, ResizedPod } from '../../support/resize/resized-pod.ts';

/** A container of an earlier sandbox, and the sandbox itself. */
const EARLIER = 'e'.repeat(64);
const EARLIER_SANDBOX = 'd'.repeat(64);

let web: ResizedPod;
beforeEach(async () => {
  web = await ResizedPod.start();
  web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
});
afterEach(() => web.close());

/** Adds a cgroup that an earlier sandbox of the pod has left. */
function leave(id: string, memory: string, events: string): void {
  const limits = { 'memory.max': memory, 'cpu.max': '10000 100000', 'cpu.weight': '4', 'cgroup.events': events };
  web.runtime.writeCgroup(`/kubepods/pod1/${id}`, limits);
}

const ENDED = 'populated 0\nfrozen 0';

test('cgroups that an earlier sandbox has left do not count in the sum, and the pod limit follows its containers', async () => {
  leave(EARLIER, String(400 * MiB), ENDED);
  leave(EARLIER_SANDBOX, 'max', ENDED);
  await web.resize(desired({ c1: { memory: mi(150) } }));
  expect(web.runtime.read('memory.max')).toBe(String(250 * MiB));
  await web.resize(desired({ c1: { memory: mi(250) } }));
  expect(web.runtime.read('memory.max')).toBe(String(350 * MiB));
});

test('an undeclared container counts as long as it has a process', async () => {
  leave(EARLIER, String(400 * MiB), 'populated 1\nfrozen 0');
  await web.resize(desired({ c1: { memory: mi(150) } }));
  expect(web.runtime.read('memory.max')).toBe(String(300 * MiB));
});

test('a declared container counts even without processes, as in gVisor', async () => {
  const { registry, tree } = web.runtime.node;
  web.runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'cgroup.events', ENDED);
  leave(EARLIER, String(400 * MiB), ENDED);
  const pod = (await registry.pod(SANDBOX))!;
  const idsOf = async (declared?: DeclaredPod) =>
    (await readPod(tree, pod, [], declared)).containers.map(({ id }) => id).sort();
  const container = { name: 'c0', id: containerId(0), kind: 'app', state: 'running' } as const;
  const declared = { source: 'inference', containers: [container], volumes: new Map() } as const;
  expect(await idsOf(declared)).toEqual([containerId(0), containerId(1)]);
  // Without a declaration it is unknown which containers the pod has.
  expect(await idsOf()).toEqual([containerId(0), containerId(1), EARLIER]);
});
