import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { cpuShares } from '../../../src/core/quantities/numbers.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import { resizePod } from '../../../src/sandbox/operations/resize-pod.ts';
import { updateContainer } from '../../../src/sandbox/operations/update-container.ts';
import { updatePod } from '../../../src/sandbox/operations/update-pod.ts';
import { FakeRuntime, SANDBOX, containerId, containerUpdate } from '../../support/fake-runtime.ts';

const ANSWER = Buffer.from('the answer of the runtime');

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
  runtime.applyUpdates();
});
afterEach(() => runtime.close());

const cgroup = `/kubepods/pod1/${containerId(0)}`;
/** The runtime reports success, and leaves this memory limit and quota. */
const update = (linux: Parameters<typeof containerUpdate>[1], written: { memory?: number; quota?: number }) =>
  updateContainer(runtime.node, containerUpdate(containerId(0), linux), () => {
    if (written.memory !== undefined) runtime.writeFile(cgroup, 'memory.max', String(written.memory * MiB));
    if (written.quota !== undefined) runtime.writeFile(cgroup, 'cpu.max', `${written.quota} 100000`);
    return Promise.resolve(ANSWER);
  });
const memory = (mebibytes: number) => ({ memory_limit_in_bytes: BigInt(mebibytes * MiB) });
const found = (): number[] => [Number(runtime.read('memory.max')) / MiB, runtime.limitOf(0) / MiB];

describe("A13: verification of the runtime's own update", () => {
  test('KEP-1287: a decrease that is not in the kernel fails the call, and the pod limit stays', async () => {
    await expect(update(memory(50), {})).rejects.toMatchObject({
      reason: 'CGROUP_WRITE_FAILED',
      context: { container: containerId(0), asked: String(50 * MiB), found: String(100 * MiB) },
    });
    expect(found()).toEqual([300, 100]);
  });

  test('KEP-1287: an increase that is not in the kernel fails the call, and the pod limit is rolled back', async () => {
    await expect(update(memory(150), {})).rejects.toMatchObject({ reason: 'CGROUP_WRITE_FAILED' });
    expect(found()).toEqual([300, 100]);
  });

  test('KEP-1287: an update is rolled back if only one of its two limits is in the kernel', async () => {
    const both = { ...memory(50), cpu_quota: 5000n, cpu_period: 100_000n };
    await expect(update(both, { memory: 50 })).rejects.toMatchObject({
      reason: 'CGROUP_WRITE_FAILED',
      context: { asked: '5000', found: '10000' },
    });
    expect(found()).toEqual([300, 100]);
    expect(runtime.read('cpu.max')).toBe('20000 100000');
  });

  test.each([
    ['a decrease', 50, 80, 280],
    ['an increase', 180, 130, 330],
    ['a decrease that becomes an increase', 50, 130, 330],
  ])(
    '%s for which a runtime plugin chooses another limit succeeds, and the pod limit follows the chosen one',
    async (_, ...values) => {
      const [asked, chosen, pod] = values;
      expect(await update(memory(asked), { memory: chosen })).toBe(ANSWER);
      expect(found()).toEqual([pod, chosen]);
      expect(runtime.warnings).toContainEqual(
        expect.objectContaining({ container: containerId(0), files: 'memory.max' }),
      );
    },
  );

  test('KEP-1287: the pod limit follows a decrease that is verified in the kernel', async () => {
    expect(await update(memory(50), { memory: 50 })).toBe(ANSWER);
    expect(found()).toEqual([250, 50]);
  });
});

describe("A13: the pod's shares after a change by kubelet", () => {
  const stored = [102n, 204n];
  beforeEach(() => {
    for (const index of [0, 1]) {
      const id = containerId(index);
      runtime.node.registry.learnContainer({ containerId: id, sandboxId: SANDBOX, name: `c${index}` });
      runtime.wrapResponder('ContainerStatus', (request, before) => {
        if (decode('ContainerStatusRequest', request).container_id !== id) return before(request);
        return encode('ContainerStatusResponse', {
          status: {
            id,
            metadata: { name: `c${index}` },
            state: 1,
            resources: { linux: { cpu_shares: stored[index]! } },
          },
          info: { info: JSON.stringify({ sandboxID: SANDBOX, pid: 100 + index }) },
        });
      });
    }
  });
  const resize = () => {
    const desired = { pod: {}, containers: new Map([['c0', { shares: cpuShares(51) }]]), volumes: new Map() };
    return resizePod(runtime.node, SANDBOX, desired, { dryRun: false, deadline: performance.now() + 60_000 });
  };

  test('ResizePod recognizes pod shares that kubelet has set to the sum of the requests, although the pod was created with others', async () => {
    // Created with 1024 shares. kubelet has written the weight of 306 since, and the shim has not seen a call.
    runtime.writeFile('/kubepods/pod1', 'cpu.weight', '12');
    await resize();
    expect(runtime.read('cpu.weight')).toBe('10');
  });

  test('ResizePod keeps a pod weight that is not derived from the sum of the requests', async () => {
    runtime.writeFile('/kubepods/pod1', 'cpu.weight', '39');
    await resize();
    expect(runtime.read('cpu.weight')).toBe('39');
  });

  test('learns the pod shares from an UpdatePodSandboxResources that repeats the value written by kubelet', async () => {
    const name = 'UpdatePodSandboxResourcesRequest';
    runtime.writeFile('/kubepods/pod1', 'cpu.weight', '1');
    const request = decode(name, encode(name, { pod_sandbox_id: SANDBOX, resources: { cpu_shares: 2n } }));
    await updatePod(runtime.node, request, () => Promise.resolve(ANSWER));
    expect((await runtime.node.registry.pod(SANDBOX))?.cpuShares).toBe(2);
    expect(runtime.read('cpu.weight')).toBe('1');
  });
});
