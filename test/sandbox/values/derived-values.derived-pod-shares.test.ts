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

describe("the pod's shares follow its containers'", () => {
  test('with the stored shares of a container that is about to start again', async () => {
    addEnded(1);
    await web.resize(desired({ c0: { shares: cpuShares(2048), cpu: cpu(200_000) } }));
    expect(runtime.read('cpu.weight')).toBe('98');
  });

  test('with the request of a container that does not run, as kubelet has admitted it', async () => {
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

  test('with the shares that the same request stores for a container that does not run', async () => {
    addEnded(1);
    await web.resize(desired({ c0: { shares: cpuShares(2048), cpu: cpu(200_000) }, b: { shares: cpuShares(1024) } }));
    // 3072 shares.
    expect(runtime.read('cpu.weight')).toBe('118');
  });

  test('with the shares that a request stores for a container that does not run, and nothing else', async () => {
    addEnded(1);
    await web.resize(desired({ b: { shares: cpuShares(1536) } }));
    expect(runtime.read('cpu.weight')).toBe('79');
  });

  test('without the shares that a request stores for a container that ended with 0', async () => {
    addEnded(0);
    runtime.writeFile('/kubepods/pod1', 'cpu.weight', '20');
    await web.resize(desired({ b: { shares: cpuShares(1536) } }));
    expect(runtime.read('cpu.weight')).toBe('20');
  });

  test('and stay where they are not their sum', async () => {
    addEnded(1);
    runtime.writeFile('/kubepods/pod1', 'cpu.weight', '70');
    await web.resize(desired({ c0: { shares: cpuShares(2048), cpu: cpu(200_000) } }));
    expect(runtime.read('cpu.weight')).toBe('70');
  });
});
