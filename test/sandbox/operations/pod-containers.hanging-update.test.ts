import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import { updatePod } from '../../../src/sandbox/operations/update-pod.ts';
import { learnContainer, learnPod } from '../../../src/server/handlers/create-and-remove.ts';
import { type FakeRuntime, RuntimeFailure, SANDBOX, containerId, podConfig } from '../../support/fake-runtime.ts';
import { ContainerUpdates } from '../../support/resize/container-updates.ts';
import { ResizedPod, desired } from '../../support/resize/resized-pod.ts';
import { mi } from '../../support/quantities/mebibytes.ts';

let web: ResizedPod;
let runtime: FakeRuntime;
let lists: number;
beforeEach(async () => {
  web = await ResizedPod.start();
  ({ runtime } = web);
  web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
  lists = 0;
  // containerd reads the status of every container of the node before it filters.
  runtime.on('ListContainers', () => {
    lists += 1;
    return new Promise(() => undefined);
  });
});
afterEach(() => web.close());

const complaints = (): unknown[] => runtime.warnings.filter(({ error }) => error !== undefined);

describe('hanging update of another pod, which also blocks ListContainers', () => {
  test('an update of another pod that hangs in the runtime does not block UpdateContainerResources', async () => {
    await new ContainerUpdates(runtime).update(120 * MiB);
    expect([...web.limits(), runtime.read('memory.max')]).toEqual([120 * MiB, 200 * MiB, String(320 * MiB)]);
  });

  test('an update of another pod that hangs in the runtime does not block UpdatePodSandboxResources', async () => {
    const name = 'UpdatePodSandboxResourcesRequest';
    const resources = { memory_limit_in_bytes: BigInt(400 * MiB) };
    const request = decode(name, encode(name, { pod_sandbox_id: SANDBOX, resources }));
    await updatePod(runtime.node, request, () => Promise.resolve(Buffer.alloc(0)));
    expect(runtime.read('memory.max')).toBe(String(400 * MiB));
  });

  test('an update of another pod that hangs does not block ResizePod, and the next ResizePod does not wait for a list', async () => {
    await web.resize(desired({ c0: { memory: mi(120) } }));
    await web.resize(desired({ c0: { memory: mi(130) } }));
    expect([...web.limits(), lists]).toEqual([130 * MiB, 200 * MiB, 1]);
  });

  test('a hanging update does not block ResizePod of a container that was created without the shim: its cgroup has its id', async () => {
    runtime.node.registry.forgetContainer(containerId(1));
    await web.resize(desired({ c1: { memory: mi(220) } }));
    expect(web.limits()).toEqual([100 * MiB, 220 * MiB]);
  });

  test('an update of another pod that hangs in the runtime does not block the response of CreateContainer', async () => {
    const resources = { memory_limit_in_bytes: BigInt(150 * MiB), cpu_quota: 10_000n, cpu_period: 100_000n };
    const config = { metadata: { name: 'c0' }, linux: { resources } };
    const request = encode('CreateContainerRequest', { pod_sandbox_id: SANDBOX, config });
    const response = encode('CreateContainerResponse', { container_id: '9'.repeat(64) });
    const answered = learnContainer(runtime.node)(
      { path: '', request, response, backendMs: 0 },
      { fields: {}, backendMs: 0 },
    );
    expect(await answered).toBeUndefined();
    expect([runtime.failOpens, complaints()]).toEqual([[], []]);
  });

  test('an update of another pod that hangs in the runtime does not block the response of RunPodSandbox', async () => {
    const request = encode('RunPodSandboxRequest', { config: podConfig as never });
    const response = encode('RunPodSandboxResponse', { pod_sandbox_id: SANDBOX });
    const answered = learnPod(runtime.node)(
      { path: '', request, response, backendMs: 0 },
      { fields: {}, backendMs: 0 },
    );
    expect(await answered).toBeUndefined();
    expect([runtime.failOpens, complaints()]).toEqual([[], []]);
  });
});

test('a hanging update of another container of the pod, without a status, does not block UpdateContainerResources', async () => {
  runtime.wrapResponder('ContainerStatus', (request, before) =>
    decode('ContainerStatusRequest', request).container_id === containerId(1)
      ? Promise.reject(new RuntimeFailure(status.DEADLINE_EXCEEDED, 'context deadline exceeded'))
      : before(request),
  );
  await new ContainerUpdates(runtime).update(120 * MiB);
  expect([...web.limits(), runtime.read('memory.max')]).toEqual([120 * MiB, 200 * MiB, String(320 * MiB)]);
});

test("rejects a resize, with the container's name, if it needs the status of a container whose update hangs", async () => {
  runtime.wrapResponder('ContainerStatus', (request, before) =>
    decode('ContainerStatusRequest', request).container_id === containerId(1)
      ? Promise.reject(new RuntimeFailure(status.DEADLINE_EXCEEDED, 'context deadline exceeded'))
      : before(request),
  );
  await expect(web.resize(desired({ c1: { memory: mi(220) } }))).rejects.toThrow(
    /ContainerStatus of container c1 of pod default\/web .*an update of the container may hang in the runtime/,
  );
  expect(web.limits()).toEqual([100 * MiB, 200 * MiB]);
});
