import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { status } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { runtimePath } from '../../../src/runtime/backend.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import type { PodDescription } from '../../../src/runtime/description.ts';
import type { Messages, Partially } from '../../../src/runtime/messages.ts';
import type { Amendment, Interceptors } from '../../../src/server/handlers/interceptors.ts';
import { createInterceptors } from '../../../src/server/handlers/table.ts';
import { containerId, FakeRuntime, RuntimeFailure, SANDBOX } from '../../support/fake-runtime.ts';

const RUNNING = 1;
const EXITED = 2;
const events = runtimePath('GetContainerEvents');

let runtime: FakeRuntime;
let interceptors: Interceptors;

beforeEach(async () => {
  runtime = await FakeRuntime.start();
  // The kernel's limits: 100 and 200 MiB.
  runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
  interceptors = createInterceptors(runtime.node, runtime.decreaseReclaimer, {
    version: '0',
    readiness: () => Promise.resolve({ ready: true, checks: [] }),
    connections: () => 1,
  });
});
afterEach(() => runtime.close());

type Status = Partially<NonNullable<Messages['ContainerStatusResponse']['status']>>;

/** A container's status with the values that the runtime has stored. */
const stored = (index: number, mebibytes: number, state = RUNNING): Status => ({
  id: containerId(index),
  state,
  resources: {
    linux: {
      memory_limit_in_bytes: BigInt(mebibytes * MiB),
      cpu_quota: 10_000n,
      cpu_period: 100_000n,
      cpu_shares: 102n,
    },
  },
});
const eventOf = (...containers_statuses: Status[]): Buffer =>
  encode('ContainerEventResponse', { container_id: containerId(0), containers_statuses });

const noTrace = (): Parameters<Amendment>[1] => ({ fields: {}, backendMs: 0 });

const amendEvent = (event: Uint8Array) => interceptors.streams.get(events)!(event);
const amendCall = async (method: string, request: Buffer, response: Buffer): Promise<Uint8Array | undefined> => {
  const { amendment } = interceptors.amendments.get(runtimePath(method))!;
  return amendment({ path: runtimePath(method), request, response, backendMs: 0 }, noTrace());
};

/** Memory limits in MiB. */
const limitsIn = (name: 'ContainerEventResponse' | 'PodSandboxStatusResponse', bytes: Uint8Array): number[] =>
  decode(name, bytes).containers_statuses.map(({ resources }) => {
    return Number(resources?.linux?.memory_limit_in_bytes ?? 0n) / MiB;
  });

/** The pod of {@link FakeRuntime.makePod}, as its RunPodSandbox describes it. */
const learned = (cgroupParent = '/kubepods/pod1'): PodDescription => ({
  sandboxId: SANDBOX,
  metadata: { uid: 'uid-1', name: 'pod', namespace: 'default' },
  cgroupParent,
  annotations: {},
  cpuShares: undefined,
  overhead: { memoryBytes: 0, cpuQuotaMicroseconds: 0, cpuPeriodMicroseconds: 0 },
});

describe('the first ContainerStatus of a container', () => {
  const first = (): Promise<Uint8Array | undefined> =>
    amendCall('ContainerStatus', Buffer.alloc(0), encode('ContainerStatusResponse', { status: stored(0, 64) }));
  const memory = (response: Uint8Array | undefined): number =>
    Number(decode('ContainerStatusResponse', response!).status?.resources?.linux?.memory_limit_in_bytes) / MiB;
  const learn = (pod: PodDescription): void => {
    const { registry } = runtime.node;
    registry.learnPod(pod);
    registry.learnContainer({ containerId: containerId(0), sandboxId: SANDBOX, name: 'c0' });
  };

  test('the first ContainerStatus needs no call to the backend if the shim has seen the creation of the container', async () => {
    learn(learned());
    expect(memory(await first())).toBe(100);
    expect(runtime.calls).toEqual([]);
    expect(runtime.node.cgroups.stored(containerId(0))).toBe(`/kubepods/pod1/${containerId(0)}`);
  });

  test('the first ContainerStatus asks the backend if the container is unknown', async () => {
    expect(memory(await first())).toBe(100);
    expect(runtime.calls).toContain('ContainerStatus');
  });

  test('the first ContainerStatus asks the backend if the cgroup has a different name than expected', async () => {
    learn(learned('/kubepods/other'));
    // The process of the container is in the cgroup.
    expect(memory(await first())).toBe(100);
    expect(runtime.calls).toContain('ContainerStatus');
    expect(runtime.failOpens).toEqual([]);
  });

  test('ContainerStatus asks the backend again after the container was removed', async () => {
    learn(learned());
    await first();
    runtime.node.registry.forgetContainer(containerId(0));
    expect(runtime.node.cgroups.stored(containerId(0))).toBeUndefined();
    await first();
    expect(runtime.calls).toContain('ContainerStatus');
  });

  test('the first ContainerStatus is unchanged and counted if the name of the cgroup is invalid', async () => {
    learn(learned('/kubepods/../pod1'));
    expect(await first()).toBeUndefined();
    expect(runtime.failOpens).toEqual(['unreadable_state']);
  });
});

describe('a prepared ContainerStatus', () => {
  const path = runtimePath('ContainerStatus');
  const prepare = (id: string) =>
    interceptors.amendments.get(path)!.prepare!(encode('ContainerStatusRequest', { container_id: id }));
  const amended = async (amendment: Amendment | undefined, status: Status): Promise<number | undefined> => {
    const response = encode('ContainerStatusResponse', { status });
    const exchange = { path, request: Buffer.alloc(0), response, backendMs: 0 };
    const bytes = await amendment!(exchange, noTrace());
    const limit = bytes && decode('ContainerStatusResponse', bytes).status?.resources?.linux?.memory_limit_in_bytes;
    return limit === undefined ? undefined : Number(limit) / MiB;
  };
  beforeEach(async () => {
    const { registry } = runtime.node;
    registry.learnPod(learned());
    for (const index of [0, 1])
      registry.learnContainer({ containerId: containerId(index), sandboxId: SANDBOX, name: `c${index}` });
    // A container is known to run since its first status.
    expect(prepare(containerId(0))).toBeUndefined();
    await amendCall('ContainerStatus', Buffer.of(), encode('ContainerStatusResponse', { status: stored(0, 64) }));
  });

  test('has the limits that the kernel has while the backend works', async () => {
    const prepared = prepare(containerId(0));
    runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'memory.max', String(150 * MiB));
    expect(await amended(prepared, stored(0, 64))).toBe(100);
    expect(await amended(prepare(containerId(0)), stored(0, 64))).toBe(150);
    expect(await amended(prepare(containerId(0)), stored(0, 150))).toBeUndefined();
    expect(await amended(prepare(containerId(0)), stored(0, 64, EXITED))).toBeUndefined();
  });

  test('reads both limits of memory at the same moment if the runtime reports swap', async () => {
    const prepared = prepare(containerId(0));
    const cgroup = `/kubepods/pod1/${containerId(0)}`;
    runtime.writeFile(cgroup, 'memory.max', String(300 * MiB));
    runtime.writeFile(cgroup, 'memory.swap.max', String(150 * MiB));
    const status = stored(0, 300);
    const swap = { memory_swap_limit_in_bytes: BigInt(450 * MiB) };
    const withSwap = { ...status, resources: { linux: { ...status.resources?.linux, ...swap } } };
    expect(await amended(prepared, withSwap)).toBeUndefined();
  });

  test('has the limits of the container in the response', async () => {
    expect(await amended(prepare(containerId(0)), stored(1, 64))).toBe(200);
  });

  test.each(['', 'unknown', containerId(0).slice(0, 8)])('is not made for the id %j, which is not known', (id) => {
    expect(prepare(id)).toBeUndefined();
    expect([runtime.calls, runtime.failOpens]).toEqual([[], []]);
  });

  test('is not made for bytes that are no message, or a cgroup that is gone', async () => {
    expect(interceptors.amendments.get(path)!.prepare!(Buffer.from([0x0a, 0x7f]))).toBeUndefined();
    const known = prepare(containerId(0));
    rmSync(join(runtime.cgroupRoot, 'kubepods/pod1', containerId(0)), { recursive: true });
    expect(prepare(containerId(0))).toBeUndefined();
    expect(await amended(known, stored(0, 64))).toBe(100);
    expect(runtime.failOpens).toEqual([]);
  });
});

describe('Status', () => {
  const path = runtimePath('Status');
  const response = encode('StatusResponse', { info: { config: '{}' } });
  const prepare = (verbose: boolean): Amendment =>
    interceptors.amendments.get(path)!.prepare!(encode('StatusRequest', { verbose }))!;
  const answer = (amendment: Amendment): ReturnType<Amendment> =>
    amendment({ path, request: Buffer.alloc(0), response: Buffer.from(response), backendMs: 0 }, noTrace());
  const infoOf = (bytes: Uint8Array): unknown => decode('StatusResponse', bytes).info;
  const info = { config: '{}', 'cri-resize-shim': '{"version":"0","connections":1,"ready":true,"checks":[]}' };

  test('a verbose Status is amended with what the shim has found while the backend works', async () => {
    const prepared = prepare(true);
    await Promise.resolve().then(() => new Promise(setImmediate));
    const bytes = answer(prepared);
    expect(bytes).not.toBeInstanceOf(Promise);
    expect(infoOf(bytes as Uint8Array)).toEqual(info);
  });

  test('a verbose Status waits for what the shim has not found yet', async () => {
    const bytes = answer(prepare(true));
    expect(bytes).toBeInstanceOf(Promise);
    expect(infoOf((await bytes)!)).toEqual(info);
  });

  test('any other Status is not amended', () => {
    expect(answer(prepare(false))).toBeUndefined();
  });
});

describe('A13: the events of GetContainerEvents', () => {
  test("running containers in an event have the kernel's values, and other containers the stored ones", async () => {
    const amended = await amendEvent(eventOf(stored(0, 64), stored(0, 64, EXITED), stored(1, 200), stored(1, 32)));
    expect(limitsIn('ContainerEventResponse', amended!)).toEqual([100, 64, 200, 200]);
    expect(runtime.failOpens).toEqual([]);
  });

  test('the values of a container in an event are equal to those in its ContainerStatus', async () => {
    const reported = stored(0, 64);
    const response = encode('ContainerStatusResponse', { status: reported });
    const single = await amendCall('ContainerStatus', Buffer.alloc(0), response);
    const event = await amendEvent(eventOf(reported));
    const [inEvent] = decode('ContainerEventResponse', event!).containers_statuses;
    expect(inEvent).toEqual(decode('ContainerStatusResponse', single!).status);
  });

  test('an event without differences is unchanged', async () => {
    expect(await amendEvent(eventOf(stored(0, 100), stored(1, 200)))).toBeUndefined();
    expect(amendEvent(eventOf())).toBeUndefined();
    expect(amendEvent(Buffer.alloc(0))).toBeUndefined();
    expect(runtime.failOpens).toEqual([]);
  });

  test('an event of containers with known cgroups is amended without a call to the backend', async () => {
    await amendEvent(eventOf(stored(0, 64)));
    const { length } = runtime.calls;
    const amended = amendEvent(eventOf(stored(0, 64)));
    expect(amended).toBeInstanceOf(Uint8Array);
    expect(runtime.calls).toHaveLength(length);
  });

  test('an undecodable event is unchanged and counted', () => {
    expect(amendEvent(Buffer.from([0x2a, 0x7f, 1]))).toBeUndefined();
    expect(amendEvent(Buffer.from([0x2a, 2, 0x0a, 5]))).toBeUndefined();
    expect(runtime.failOpens).toEqual(['undecodable', 'undecodable']);
  });

  test('an unreadable cgroup is counted, and other containers of the event are amended', async () => {
    await amendEvent(eventOf(stored(0, 64), stored(1, 64)));
    runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'memory.max', 'rubbish');
    const amended = await amendEvent(eventOf(stored(0, 64), stored(1, 64)));
    expect(limitsIn('ContainerEventResponse', amended!)).toEqual([64, 200]);
    expect(runtime.failOpens).toEqual(['unreadable_state']);
  });

  test('a container that has ended since the event is not counted, and other containers are amended', async () => {
    await amendEvent(eventOf(stored(0, 64), stored(1, 64)));
    runtime.removeCgroup(`/kubepods/pod1/${containerId(0)}`);
    const amended = await amendEvent(eventOf(stored(0, 64), stored(1, 64)));
    expect(limitsIn('ContainerEventResponse', amended!)).toEqual([64, 200]);
    expect(runtime.failOpens).toEqual([]);
  });

  test('a cgroup lookup that fails in the backend is counted, and other containers of the event are amended', async () => {
    await amendEvent(eventOf(stored(1, 64)));
    runtime.on('ContainerStatus', () => {
      throw new RuntimeFailure(status.UNAVAILABLE, 'gone');
    });
    const amended = await amendEvent(eventOf(stored(0, 64), stored(1, 64)));
    expect(limitsIn('ContainerEventResponse', amended!)).toEqual([64, 200]);
    expect(runtime.failOpens).toEqual(['unreadable_state']);
  });
});

describe('A13: PodSandboxStatus', () => {
  const response = (...containers_statuses: Status[]): Buffer =>
    encode('PodSandboxStatusResponse', { status: { id: SANDBOX }, info: { own: '{}' }, containers_statuses });
  const request = (verbose: boolean): Buffer => encode('PodSandboxStatusRequest', { pod_sandbox_id: SANDBOX, verbose });

  test("KEP-1287: the container statuses in PodSandboxStatus have the kernel's values", async () => {
    const before = response(stored(0, 64), stored(1, 200));
    const amended = await amendCall('PodSandboxStatus', request(false), before);
    expect(limitsIn('PodSandboxStatusResponse', amended!)).toEqual([100, 200]);
    const others = { containers_statuses: [] };
    expect({ ...decode('PodSandboxStatusResponse', amended!), ...others }).toEqual({
      ...decode('PodSandboxStatusResponse', before),
      ...others,
    });
  });

  test('a PodSandboxStatus response without container statuses is unchanged', async () => {
    expect(await amendCall('PodSandboxStatus', request(false), response())).toBeUndefined();
  });

  test("a verbose PodSandboxStatus response has the kernel's values and the pod's resizes", async () => {
    const amended = await amendCall('PodSandboxStatus', request(true), response(stored(0, 64)));
    expect(limitsIn('PodSandboxStatusResponse', amended!)).toEqual([100]);
    expect(Object.keys(decode('PodSandboxStatusResponse', amended!).info)).toEqual(['own', 'cri-resize-shim']);
  });

  test("a verbose PodSandboxStatus response has the kernel's values even if the pod's resizes cannot be read", async () => {
    // The cgroup of the container is then known.
    await amendEvent(eventOf(stored(0, 64)));
    runtime.on('PodSandboxStatus', () => {
      throw new RuntimeFailure(status.UNAVAILABLE, 'gone');
    });
    const other = encode('PodSandboxStatusResponse', {
      status: { id: 'b'.repeat(64) },
      info: { own: '{}' },
      containers_statuses: [stored(0, 64)],
    });
    const amended = await amendCall('PodSandboxStatus', request(true), other);
    expect(limitsIn('PodSandboxStatusResponse', amended!)).toEqual([100]);
    expect(Object.keys(decode('PodSandboxStatusResponse', amended!).info)).toEqual(['own']);
    expect(runtime.failOpens).toEqual(['unreadable_state']);
  });
});
