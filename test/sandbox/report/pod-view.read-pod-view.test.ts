import { afterEach, beforeEach, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import { podInfo } from '../../../src/sandbox/report/pod-info.ts';
import { readPodView } from '../../../src/sandbox/report/pod-view.ts';
import { containerId, FakeRuntime, SANDBOX } from '../../support/fake-runtime.ts';

const names = ['web', 'proxy', 'agent'];

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(
    'max',
    names.map(() => 64 * MiB),
  );
  runtime.on('ContainerStatus', (request) => {
    const index = Number(decode('ContainerStatusRequest', request).container_id[0]);
    return encode('ContainerStatusResponse', {
      status: { id: containerId(index), metadata: { name: names[index]! }, state: 1 },
      info: { info: JSON.stringify({ sandboxID: SANDBOX, pid: 100 + index }) },
    });
  });
});
afterEach(() => runtime.close());

test.each([[[0, 1, 2]], [[2, 0, 1]]])(
  'a pod view sorts containers by name if they were created in the order %j',
  async (order) => {
    for (const index of order)
      runtime.node.registry.learnContainer({
        containerId: containerId(index),
        sandboxId: SANDBOX,
        name: names[index]!,
      });
    const sorted = names.toSorted();
    const view = await readPodView(runtime.node, runtime.decreaseReclaimer, SANDBOX);
    expect(view.containers.map(({ name }) => name)).toEqual(sorted);
    expect(view.declared?.containers.map(({ name }) => name)).toEqual(sorted);
    expect(Object.keys((await podInfo(runtime.node, runtime.decreaseReclaimer, SANDBOX)).containers)).toEqual(sorted);
  },
);

test('a pod view contains the load of the pod and of its containers', async () => {
  runtime.node.registry.learnContainer({ containerId: containerId(0), sandboxId: SANDBOX, name: 'web' });
  runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'cpu.stat', 'usage_usec 5000');
  runtime.writeFile('/kubepods/pod1', 'memory.pressure', 'some avg10=2.50 avg60=0.00 avg300=0.00 total=0');
  const { limits, containers } = await readPodView(runtime.node, runtime.decreaseReclaimer, SANDBOX);
  expect(limits.load).toMatchObject({ unreclaimable: 500_000, memoryStalled: 2.5, cpuTime: undefined });
  expect(containers[0]?.limits.load).toMatchObject({ cpuTime: 5000, memoryStalled: undefined });
});

test('a pod view omits invalid CPU shares and reports the other values', async () => {
  runtime.on('ContainerStatus', () =>
    encode('ContainerStatusResponse', {
      status: {
        id: containerId(0),
        metadata: { name: 'web' },
        state: 1,
        resources: { linux: { cpu_shares: -5n } },
      },
      info: { info: JSON.stringify({ sandboxID: SANDBOX, pid: 100 }) },
    }),
  );
  runtime.node.registry.learnContainer({ containerId: containerId(0), sandboxId: SANDBOX, name: 'web' });
  const { containers } = await readPodView(runtime.node, runtime.decreaseReclaimer, SANDBOX);
  expect(containers[0]?.limits).toMatchObject({ memory: 64 * MiB });
  expect(containers[0]?.limits).not.toHaveProperty('shares');
});
