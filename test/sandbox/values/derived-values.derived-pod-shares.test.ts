import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { cpuShares } from '../../../src/core/quantities/numbers.ts';
import { encode } from '../../../src/runtime/codec.ts';
import { type FakeRuntime, SANDBOX, containerId } from '../../support/fake-runtime.ts';
import { ResizedPod, cpu, desired } from '../../support/resize/resized-pod.ts';

const ENDED = 'e'.repeat(64);
const linux = { memory_limit_in_bytes: BigInt(100 * MiB), cpu_shares: 512n };

let web: ResizedPod;
let runtime: FakeRuntime;
beforeEach(async () => {
  web = await ResizedPod.start();
  ({ runtime } = web);
  web.make(String(200 * MiB), [100 * MiB]);
  runtime.describeContainer(containerId(0), { metadata: { name: 'c0' }, state: 1, resources: { linux } }, 100);
  // 1024 shares.
  runtime.writeFile('/kubepods/pod1', 'cpu.weight', '39');
});
afterEach(() => web.close());

/** Adds a container that has ended. */
function addEnded(exitCode: number): void {
  runtime.node.registry.learnContainer({ containerId: ENDED, sandboxId: SANDBOX, name: 'b' });
  runtime.describeContainer(ENDED, { metadata: { name: 'b' }, state: 2, exit_code: exitCode, resources: { linux } }, 0);
  const listed = [
    { id: containerId(0), metadata: { name: 'c0' }, state: 1, created_at: 1n },
    { id: ENDED, metadata: { name: 'b' }, state: 2, created_at: 2n },
  ];
  runtime.on('ListContainers', () => encode('ListContainersResponse', { containers: listed }));
}

describe('CPU shares of a pod', () => {
  test('the shares of a pod include the stored shares of a container that restarts', async () => {
    addEnded(1);
    await web.resize(desired({ c0: { shares: cpuShares(2048), cpu: cpu(200_000) } }));
    expect(runtime.read('cpu.weight')).toBe('98');
  });

  test('the shares of a pod include the request that kubelet has admitted for a container that does not run', async () => {
    addEnded(1);
    const requests = { containers: new Map([['b', { milliCpu: 500 }]]), pod: undefined };
    const containers = new Map([
      ['c0', {}],
      ['b', {}],
    ]);
    runtime.allocated.set('uid-1', { containers, pod: undefined, requests, isComplete: true });
    await web.resize(desired({ c0: { shares: cpuShares(2048), cpu: cpu(200_000) } }));
    expect(runtime.read('cpu.weight')).toBe('98');
  });

  test('the shares of a pod include the shares that the same request sets for a container that does not run', async () => {
    addEnded(1);
    await web.resize(desired({ c0: { shares: cpuShares(2048), cpu: cpu(200_000) }, b: { shares: cpuShares(1024) } }));
    // 3072 shares.
    expect(runtime.read('cpu.weight')).toBe('118');
  });

  test('the shares of a pod change if a request only sets shares of a container that does not run', async () => {
    addEnded(1);
    await web.resize(desired({ b: { shares: cpuShares(1536) } }));
    expect(runtime.read('cpu.weight')).toBe('79');
  });

  test('the shares of a pod exclude a container that has ended with exit code 0', async () => {
    addEnded(0);
    runtime.writeFile('/kubepods/pod1', 'cpu.weight', '20');
    await web.resize(desired({ b: { shares: cpuShares(1536) } }));
    expect(runtime.read('cpu.weight')).toBe('20');
  });

  test('the shares of a pod stay if they are not the sum of its containers', async () => {
    addEnded(1);
    runtime.writeFile('/kubepods/pod1', 'cpu.weight', '70');
    await web.resize(desired({ c0: { shares: cpuShares(2048), cpu: cpu(200_000) } }));
    expect(runtime.read('cpu.weight')).toBe('70');
  });
});
