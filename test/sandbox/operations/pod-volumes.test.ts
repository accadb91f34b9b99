import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { applyContainerShares, applyVolumeSizes } from '../../../src/sandbox/operations/pod-volumes.ts';
import type { PodDescription } from '../../../src/runtime/description.ts';
import { CREATED, EXITED, FakeDeclaringRuntime } from '../../support/fake-declaring-runtime.ts';
import { SANDBOX } from '../../support/fake-runtime.ts';

const MOUNTED = 160;

let declaring: FakeDeclaringRuntime;
let pod: PodDescription;
let size: number;
beforeEach(async () => {
  declaring = await FakeDeclaringRuntime.start();
  const { runtime } = declaring;
  // The pod's cgroup, and no container.
  runtime.makePod(String(MOUNTED * MiB), []);
  const { volumes, registry, policies } = runtime.node;
  size = MOUNTED;
  const cache = { podUid: 'uid-1', name: 'cache', device: '0:50' };
  const measured = () => ({ size: bytes(size * MiB), used: 0, pageSize: 4096 });
  vi.spyOn(volumes, 'ofPod').mockImplementation(() => [cache as never]);
  vi.spyOn(volumes, 'measure').mockImplementation(() => measured() as never);
  vi.spyOn(volumes, 'remount').mockImplementation((_, to) => {
    const before = measured();
    size = to / MiB;
    return Promise.resolve({ outcome: 'remounted', before, after: measured() } as never);
  });
  pod = (await registry.pod(SANDBOX))!;
  policies.annotate(SANDBOX, { 'volume.cri-resize-shim.io/cache': '50%/a' });
});
afterEach(() => declaring.close());

/** Returns the size of the volume, in mebibytes, after its rule was applied. */
const applied = async (): Promise<number> => {
  await applyVolumeSizes(declaring.runtime.node, pod);
  return size;
};

describe("a volume of half a container's limit", () => {
  test("sizes a volume to half the limit in kubelet's state when the pod starts without containers", async () => {
    declaring.has();
    declaring.kubeletAdmitted({ a: 96 });
    expect(await applied()).toBe(48);
  });

  test('sizes a volume to half the limit that the runtime stores when the container is created', async () => {
    declaring.has();
    expect(await applied()).toBe(MOUNTED);
    declaring.has({ name: 'a', state: CREATED, limit: 96 });
    expect(await applied()).toBe(48);
  });

  test('sizes a volume to half the limit of the next container after RestartContainer', async () => {
    declaring.has({ name: 'a', state: EXITED, limit: 96, exitCode: 137 }, { name: 'a', state: CREATED, limit: 64 });
    expect(await applied()).toBe(32);
  });

  test('does not resize a volume if its container has no limit or is unknown', async () => {
    declaring.has({ name: 'a', state: CREATED });
    expect(await applied()).toBe(MOUNTED);
    declaring.has({ name: 'b', state: CREATED, limit: 64 });
    expect(await applied()).toBe(MOUNTED);
  });
});

test('the creation of a container sets the volume of its share at once, and only a restart repeats it later', async () => {
  const { node } = declaring.runtime;
  const created = (id: string): void =>
    node.registry.learnContainer({ containerId: id, sandboxId: SANDBOX, name: 'a' });
  declaring.has({ name: 'a', state: CREATED, limit: 96 });
  created('a-0');
  await applyContainerShares(node, pod, 'b');
  expect(size).toBe(MOUNTED);
  await applyContainerShares(node, pod, 'a');
  expect([size, node.growth.isRunning(SANDBOX)]).toEqual([48, false]);
  declaring.has({ name: 'a', state: EXITED, limit: 96, exitCode: 137 }, { name: 'a', state: CREATED, limit: 64 });
  created('a-1');
  await applyContainerShares(node, pod, 'a');
  expect([size, node.growth.isRunning(SANDBOX)]).toEqual([32, true]);
});
