import { afterEach, beforeEach, expect, test } from 'vitest';
import { cpuShares } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { decode } from '../../../src/runtime/codec.ts';
import type { Messages } from '../../../src/runtime/messages.ts';
import { type FakeRuntime, podConfig } from '../../support/fake-runtime.ts';
import { mi } from '../../support/quantities/mebibytes.ts';
import { cpu, desired, ResizedPod } from '../../support/resize/resized-pod.ts';

type Request = Messages['UpdatePodSandboxResourcesRequest'];

let web: ResizedPod;
let runtime: FakeRuntime;
let requests: Request[];
beforeEach(async () => {
  web = await ResizedPod.start();
  ({ runtime } = web);
  requests = [];
  runtime.on('UpdatePodSandboxResources', (request) => {
    requests.push(decode('UpdatePodSandboxResourcesRequest', request));
    return Buffer.alloc(0);
  });
});
afterEach(() => web.close());

/** A pod of two containers with 100 and 200 MiB and a tenth of a CPU each, and with an overhead of 20 MiB and 250m. */
function makeWithOverhead(shares: number, weight: string): void {
  web.make(String(320 * MiB), [100 * MiB, 200 * MiB]);
  runtime.writeFile('/kubepods/pod1', 'cpu.max', '45000 100000');
  runtime.writeFile('/kubepods/pod1', 'cpu.weight', weight);
  const overhead = { memory_limit_in_bytes: 20 * MiB, cpu_quota: 25_000, cpu_period: 100_000, cpu_shares: 256 };
  const linux = { ...podConfig.linux, resources: { cpu_shares: shares }, overhead };
  runtime.describePod({ config: { ...podConfig, linux } });
}

const resources = (memory: number, quota: number, shares: number) => ({
  memory_limit_in_bytes: BigInt(memory),
  cpu_quota: BigInt(quota),
  cpu_period: 100_000n,
  cpu_shares: BigInt(shares),
});
const overhead = resources(20 * MiB, 25_000, 256);

test('KEP-1287: a ResizePod that changes a pod limit sends memory limit, CPU quota and shares of the pod to the runtime in one call', async () => {
  web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
  await web.resize(desired({ c0: { memory: mi(150) } }));
  expect(requests).toMatchObject([{ resources: resources(350 * MiB, 20_000, 1024), overhead: { cpu_shares: 0n } }]);
});

test('sends the values of the pod without its overhead, which is a separate message', async () => {
  // The old formula: 512 + 256 shares.
  makeWithOverhead(512, '30');
  await web.resize(desired({ c0: { cpu: cpu(30_000) } }));
  expect(requests).toMatchObject([{ resources: resources(300 * MiB, 40_000, 512), overhead }]);
});

test('sends new pod shares without those of the overhead, also with the next change', async () => {
  makeWithOverhead(512, '30');
  await web.resize(desired({}, { pod: { shares: cpuShares(384) } }));
  await web.resize(desired({ c0: { memory: mi(150) } }));
  expect(requests).toMatchObject([
    { resources: resources(300 * MiB, 20_000, 128), overhead },
    { resources: resources(350 * MiB, 20_000, 128), overhead },
  ]);
});

test('reads pod shares that kubelet has changed since from the weight', async () => {
  web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
  runtime.writeFile('/kubepods/pod1', 'cpu.weight', '20');
  await web.resize(desired({ c0: { memory: mi(150) } }));
  // kubelet's cpuWeightToCPUShares rounds down: 500.
  expect(requests).toMatchObject([{ resources: resources(350 * MiB, 20_000, 500) }]);
});

test('reports -1 for the memory and CPU limits of a pod without limits', async () => {
  makeWithOverhead(512, '30');
  runtime.writeFile('/kubepods/pod1', 'memory.max', 'max');
  runtime.writeFile('/kubepods/pod1', 'cpu.max', 'max 100000');
  await web.resize(desired({}, { pod: { shares: cpuShares(384) } }));
  expect(requests).toMatchObject([{ resources: resources(-1, -1, 128), overhead }]);
});
