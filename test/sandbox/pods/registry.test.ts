import { afterEach, beforeEach, expect, test } from 'vitest';
import { encode } from '../../../src/runtime/codec.ts';
import { ContainerState } from '../../../src/runtime/messages.ts';
import type { Registry } from '../../../src/sandbox/pods/registry.ts';
import { FakeRuntime, podConfig, SANDBOX } from '../../support/fake-runtime.ts';

let runtime: FakeRuntime;
let registry: Registry;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  ({ registry } = runtime.node);
});
afterEach(() => runtime.close());

const learn = (sandboxId: string, containerId: string): void =>
  registry.learnContainer({ containerId, sandboxId, name: `name-${containerId}` });
const idsOf = (sandboxId: string): string[] => registry.containersOf(sandboxId).map(({ containerId }) => containerId);

test('the containers of a pod are in the order in which they were learned', () => {
  learn('a', 'one');
  learn('b', 'other');
  learn('a', 'two');
  learn('a', 'one');
  expect([idsOf('a'), idsOf('b'), idsOf('c')]).toEqual([['one', 'two'], ['other'], []]);
});

test('a container that is learned again with another pod belongs to the newer one', () => {
  learn('', 'one');
  learn('a', 'one');
  expect([idsOf(''), idsOf('a')]).toEqual([[], ['one']]);
  expect(registry.size.containers).toBe(1);
});

test('containers are forgotten one by one or with their pod, and the watchers are called for each', () => {
  const removed: string[] = [];
  registry.watch({ containerRemoved: (id) => removed.push(id) });
  registry.learnPod({
    sandboxId: 'a',
    metadata: { uid: 'uid-a', name: 'a', namespace: 'default' },
    cgroupParent: '/kubepods/a',
    annotations: {},
    cpuShares: undefined,
    overhead: { memoryBytes: 0, cpuQuotaMicroseconds: 0, cpuPeriodMicroseconds: 0 },
  });
  for (const id of ['one', 'two', 'three']) learn('a', id);
  learn('b', 'other');
  registry.forgetContainer('two');
  expect(idsOf('a')).toEqual(['one', 'three']);
  registry.forgetPod('a');
  expect([idsOf('a'), idsOf('b')]).toEqual([[], ['other']]);
  expect(removed).toEqual(['two', 'one', 'three']);
  expect(registry.size).toEqual({ pods: 0, containers: 1 });
});

test('a refresh returns the listed containers by pod, and forgets those that the runtime no longer lists', async () => {
  learn('a', 'ended');
  runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', {}));
  runtime.on('ListContainers', () =>
    encode('ListContainersResponse', {
      containers: [
        { id: 'one', pod_sandbox_id: 'a', metadata: { name: 'web' }, state: ContainerState.CONTAINER_RUNNING },
        { id: 'other', pod_sandbox_id: 'b', metadata: { name: 'web' }, state: ContainerState.CONTAINER_EXITED },
        { id: 'two', pod_sandbox_id: 'a', metadata: { name: 'proxy' }, state: ContainerState.CONTAINER_CREATED },
      ],
    }),
  );
  const containers = await registry.refresh();
  expect([...containers].map(([pod, listed]) => [pod, listed.map(({ id }) => id)])).toEqual([
    ['a', ['one', 'two']],
    ['b', ['other']],
  ]);
  expect([idsOf('a'), idsOf('b')]).toEqual([['one', 'two'], ['other']]);
  expect(registry.container('two')).toMatchObject({ sandboxId: 'a', name: 'proxy' });
});

test('a refresh adds a sandbox that was created without the shim before it forgets the replaced one', async () => {
  const calls: string[] = [];
  await registry.pod(SANDBOX);
  registry.watch({
    podAdded: ({ sandboxId }) => calls.push(`added ${sandboxId[0]}`),
    podRemoved: ({ sandboxId }) => calls.push(`removed ${sandboxId[0]}`),
  });
  const next = 'b'.repeat(64);
  runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: next }] }));
  runtime.on('PodSandboxStatus', () =>
    encode('PodSandboxStatusResponse', { status: { id: next }, info: { info: JSON.stringify({ config: podConfig }) } }),
  );
  await registry.refresh();
  expect(calls).toEqual(['added b', 'removed a']);
});
