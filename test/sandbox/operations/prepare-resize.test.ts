import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import { preparations } from '../../../src/sandbox/operations/prepare-resize.ts';
import { updatePod } from '../../../src/sandbox/operations/update-pod.ts';
import type { DesiredPod } from '../../../src/sandbox/plan/resize-request.ts';
import { containerId, type FakeRuntime, SANDBOX } from '../../support/fake-runtime.ts';
import { mi } from '../../support/quantities/mebibytes.ts';
import { ContainerUpdates, cpu, desired, ResizedPod } from '../../support/resize/resized-pod.ts';

let web: ResizedPod;
let runtime: FakeRuntime;
beforeEach(async () => {
  web = await ResizedPod.start();
  ({ runtime } = web);
});
afterEach(() => web.close());

describe('a ResizePod that is rejected before any change', () => {
  beforeEach(() => web.make(String(300 * MiB), [100 * MiB, 200 * MiB]));
  afterEach(() =>
    expect([runtime.read('memory.max'), ...web.limits()]).toEqual([String(300 * MiB), 100 * MiB, 200 * MiB]),
  );

  test.each([
    ['an unknown container', { c9: { memory: mi(1) } }, {}, { code: 3, reason: 'UNKNOWN_CONTAINER' }],
    [
      'an unknown volume',
      {},
      { volumes: new Map([['cache', { kind: 'absolute', bytes: mi(1) }]]) },
      { code: 3, reason: 'UNKNOWN_VOLUME' },
    ],
    [
      'a container limit below unreclaimable memory',
      { c0: { memory: bytes(1000) } },
      {},
      { code: 9, reason: 'MEMORY_NOT_RECLAIMABLE' },
    ],
    [
      'a pod limit below unreclaimable memory',
      {},
      { pod: { memory: bytes(1000) } },
      { code: 9, reason: 'MEMORY_NOT_RECLAIMABLE' },
    ],
  ])('KEP-6030: a ResizePod is rejected before any change because of %s', async (_name, containers, more, error) => {
    await expect(web.resize(desired(containers, more as Partial<DesiredPod>))).rejects.toMatchObject(error);
  });
});

test('an error lists the container names of the pod sorted, regardless of the order of the runtime', async () => {
  web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
  runtime.on('ListContainers', () =>
    encode('ListContainersResponse', {
      containers: [1, 0].map((index) => ({
        id: containerId(index),
        metadata: { name: `c${index}` },
        state: 1,
        created_at: 1n,
      })),
    }),
  );
  await expect(web.resize(desired({ d: { memory: mi(1) } }))).rejects.toThrow(
    / has no container d.* \(it has c0, c1\)$/,
  );
});

test('a resize lists the containers of its pod once', async () => {
  web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
  await web.resize(desired({ c0: { memory: mi(120) } }));
  expect(web.limits()).toEqual([120 * MiB, 200 * MiB]);
  expect(runtime.calls.filter((call) => call === 'ListContainers')).toHaveLength(1);
});

describe('a limit above that of an ancestor cgroup of the pod', () => {
  const limitOf = (cgroup: string, mebibytes: number): void =>
    runtime.writeCgroup(cgroup, { 'memory.max': String(mebibytes * MiB), 'cpu.max': 'max 100000' });

  test('allows a limit above that of kubelet’s own cgroup, because Kubernetes allows limits above the node’s capacity', async () => {
    web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
    limitOf('/kubepods', 500);
    await web.resize(desired({ c0: { memory: mi(600) } }, { pod: { memory: mi(900) } }));
    expect(web.limits()).toEqual([600 * MiB, 200 * MiB]);
    expect(runtime.read('memory.max')).toBe(String(900 * MiB));
  });

  test('does not read the limit of kubelet’s cgroup when limits are lowered', async () => {
    web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
    limitOf('/kubepods', 500);
    rmSync(join(runtime.cgroupRoot, 'kubepods/memory.max'));
    await web.resize(desired({ c1: { memory: mi(190) } }));
    expect(web.limits()).toEqual([100 * MiB, 190 * MiB]);
  });

  /** Moves the pod below a cgroup that is not kubelet's. */
  function inAnother(memory: number): void {
    web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
    mkdirSync(join(runtime.cgroupRoot, 'workloads'));
    renameSync(join(runtime.cgroupRoot, 'kubepods'), join(runtime.cgroupRoot, 'workloads/kubepods'));
    limitOf('/workloads', memory);
    const metadata = { name: 'web', uid: 'uid-1', namespace: 'default' };
    runtime.describePod({
      config: { metadata, annotations: {}, linux: { cgroup_parent: '/workloads/kubepods/pod1' } },
    });
    for (const index of [0, 1])
      writeFileSync(
        join(runtime.procRoot, String(100 + index), 'cgroup'),
        `0::/workloads/kubepods/pod1/${containerId(index)}\n`,
      );
  }

  test("KEP-1287: a limit of a container or a pod above that of an ancestor cgroup that is not kubelet's is rejected", async () => {
    inAnother(500);
    await expect(web.resize(desired({ c0: { memory: mi(600) } }))).rejects.toMatchObject({
      code: 9,
      reason: 'EXCEEDS_NODE',
      context: { found: String(500 * MiB) },
      message: `container c0: memory.max ${600 * MiB} is more than ${500 * MiB}: cgroup /workloads allows no more`,
    });
    await expect(web.resize(desired({}, { pod: { memory: mi(501) } }))).rejects.toMatchObject({
      reason: 'EXCEEDS_NODE',
      message: expect.stringContaining('pod default/web: memory.max') as string,
    });
    await expect(web.resize(desired({}, { pod: { memory: mi(500) } }), { dryRun: true })).resolves.toBeDefined();
  });

  test('allows a limit above that of an ancestor cgroup if the limit is not raised', async () => {
    inAnother(150);
    const repeated = { c0: { memory: mi(100) }, c1: { memory: mi(200) } };
    await expect(web.resize(desired(repeated, { pod: { memory: mi(300) } }), { dryRun: true })).resolves.toBeDefined();
    await expect(web.resize(desired({ c1: { memory: mi(190) } }), { dryRun: true })).resolves.toBeDefined();
    await expect(web.resize(desired({ c1: { memory: mi(201) } }), { dryRun: true })).rejects.toMatchObject({
      reason: 'EXCEEDS_NODE',
    });
  });
});

describe('a resource request above the limit', () => {
  const fits = (containers: object, more: Partial<DesiredPod> = {}) => {
    web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
    return web.resize(desired(containers, more));
  };
  const memory = (mebibytes: number) => ({ memoryRequests: { containers: { c0: mi(mebibytes) } } });

  test('KEP-1287: a resource request above its unchanged limit is rejected with both values', async () => {
    const message = 'containers["c0"].requests.memory: "101Mi": the request is above the limit, 100Mi';
    await expect(fits({ c0: {} }, memory(101))).rejects.toThrow(message);
    await expect(fits({ c0: { shares: 104 } })).rejects.toThrow('containers["c0"].requests.cpu: "102m"');
    await expect(fits({}, { memoryRequests: { pod: mi(301), containers: {} } })).rejects.toMatchObject({
      code: 3,
      reason: 'INVALID_VALUE',
      context: { field: 'resources.requests.memory' },
    });
  });

  test('accepts a resource request that equals its limit, and one that is raised together with its limit', async () => {
    expect((await fits({ c0: {} }, memory(100))).steps).toEqual([]);
    await fits({ c0: { memory: mi(150) } }, memory(150));
    await fits({ c0: { memory: mi(150) } }, { memoryRequests: { pod: mi(350), containers: {} } });
  });
});

describe('a limit below the current resource request', () => {
  beforeEach(() => {
    web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
    const entry = (memory: number, milliCpu: number) =>
      new Map([0, 1].map((index) => [`c${index}`, { memory: mi(memory), milliCpu }]));
    const requests = { containers: entry(80, 50), pod: undefined };
    runtime.allocated.set('uid-1', { containers: entry(200, 100), pod: undefined, requests, isComplete: true });
  });

  test.each([
    ['c0.memory=64Mi', { c0: { memory: mi(64) } }, 'containers["c0"].limits.memory: "64Mi"', '80Mi'],
    ['c0.cpu=40m', { c0: { cpu: cpu(4000) } }, 'containers["c0"].limits.cpu: "40m"', '50m'],
  ])(
    'rejects a limit below the current resource request before any change: %s',
    async (_, containers, field, request) => {
      await expect(web.resize(desired(containers))).rejects.toMatchObject({
        code: 3,
        reason: 'INVALID_VALUE',
        message: `${field}: the limit is below the request, ${request}`,
      });
      expect(web.limits()).toEqual([100 * MiB, 200 * MiB]);
    },
  );
});

describe('resizes of init, ephemeral and undeclared containers', () => {
  const init = 'e'.repeat(64);
  /** Adds a container that is not one of c0 and c1, which kubelet's state lists. */
  const initContainer = (
    state: number,
    limits: Record<string, bigint> = { memory_limit_in_bytes: BigInt(50 * MiB) },
  ) => {
    web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
    runtime.node.registry.learnContainer({ containerId: init, sandboxId: SANDBOX, name: 'init' });
    runtime.describeContainer(init, {
      metadata: { name: 'init' },
      state,
      created_at: -20n,
      finished_at: -10n,
      resources: { linux: limits },
    });
  };
  const kubeletKnows = (...names: string[]): void => {
    const containers = new Map(names.map((name) => [name, { memory: mi(100) }]));
    runtime.allocated.set('uid-1', { containers, pod: undefined, isComplete: true });
  };
  /** ListContainers returns this container and the running ones. */
  const lists = (state: number): void =>
    runtime.on('ListContainers', () =>
      encode('ListContainersResponse', {
        containers: [
          { id: init, metadata: { name: 'init' }, state, created_at: 1n },
          { id: containerId(0), metadata: { name: 'c0' }, state: 1, created_at: 2n },
          { id: containerId(1), metadata: { name: 'c1' }, state: 1, created_at: 3n },
        ],
      }),
    );

  test('rejects a volume share of a container that the pod neither has nor declares', async () => {
    initContainer(1);
    lists(1);
    vi.spyOn(runtime.node.volumes, 'ofPod').mockReturnValue([
      { podUid: 'uid-1', name: 'cache', device: '0:1', mountPoint: '/none' },
    ]);
    vi.spyOn(runtime.node.volumes, 'measure').mockReturnValue({ size: mi(10), used: bytes(0) } as never);
    const shareOf = (container: string) =>
      desired({}, { volumes: new Map([['cache', { kind: 'container-share', hundredths: 5000, container }]]) });
    await expect(web.resize(shareOf('late'), { dryRun: true })).rejects.toThrow(
      /has no container late \(it has c0, c1, init\)$/,
    );
    await expect(web.resize(shareOf('c0'), { dryRun: true })).resolves.toBeDefined();
    kubeletKnows('c0', 'c1', 'late');
    await expect(web.resize(shareOf('lat'), { dryRun: true })).rejects.toMatchObject({
      reason: 'UNKNOWN_CONTAINER',
      message: expect.stringMatching(
        /has no container lat: did you mean late\? \(it has c0, c1, init, late\)$/,
      ) as string,
    });
    await expect(web.resize(shareOf('late'), { dryRun: true })).resolves.toBeDefined();
  });

  test('KEP-1287: a resize that includes an ended init container is rejected as a whole', async () => {
    initContainer(2);
    lists(2);
    kubeletKnows('c0', 'c1');
    await expect(web.resize(desired({ init: { memory: mi(80) }, c0: { memory: mi(80) } }))).rejects.toMatchObject({
      code: 9,
      reason: 'INIT_CONTAINER_ENDED',
      context: { container: 'init' },
    });
    expect(web.limits()).toEqual([100 * MiB, 200 * MiB]);
  });

  test('KEP-1287: a resize of a running init container that kubelet up to 1.35 does not resize is rejected', async () => {
    initContainer(1);
    lists(1);
    // kubelet has declared c2, which starts after the init container.
    kubeletKnows('c0', 'c1', 'c2');
    await expect(web.resize(desired({ init: { memory: mi(80) } }))).rejects.toMatchObject({
      code: 9,
      reason: 'INIT_CONTAINER_NOT_RESIZABLE',
      context: { container: 'init' },
    });
  });

  test('KEP-1287: a resize of an ephemeral container is rejected', async () => {
    initContainer(1, {});
    lists(1);
    kubeletKnows('c0', 'c1');
    await expect(web.resize(desired({ init: { memory: mi(80) } }))).rejects.toMatchObject({
      code: 9,
      reason: 'EPHEMERAL_CONTAINER_NOT_RESIZABLE',
      context: { container: 'init' },
    });
  });

  test('A9: accepts a resize of an ordinary container that ended with 0 before the others were created', async () => {
    initContainer(2);
    lists(2);
    const stored: bigint[] = [];
    runtime.on('UpdateContainerResources', (request) => {
      stored.push(runtime.decodeUpdate(request).linux?.memory_limit_in_bytes ?? 0n);
      return Buffer.alloc(0);
    });
    await web.resize(desired({ init: { memory: mi(80) } }));
    expect(stored).toEqual([BigInt(80 * MiB)]);
    // kubelet lists it. Since 1.36 it lists init containers too, which cannot be distinguished from an ordinary one.
    kubeletKnows('init', 'c0', 'c1');
    await web.resize(desired({ init: { memory: mi(90) } }));
    expect(stored).toEqual([BigInt(80 * MiB), BigInt(90 * MiB)]);
  });
});

describe('many resizes at once', () => {
  /** Time without progress after which more preparations begin, in milliseconds. */
  const PAUSE = 200;
  /** Number of preparations that run at the same time. */
  const MOST = 8;

  /** Functions that end the preparations of other resizes. */
  let others: (() => void)[];
  /** Functions that end a pause. Only the tests call them. */
  let pauses: (() => void)[];

  beforeEach(() => {
    web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
    others = [];
    holdPauses();
  });
  afterEach(() => {
    for (const end of others) end();
    vi.restoreAllMocks();
  });

  function holdPauses(): void {
    pauses = [];
    const real = globalThis.setTimeout;
    vi.spyOn(globalThis, 'setTimeout').mockImplementation((action: () => void, ms?: number) => {
      if (ms !== PAUSE) return real(action, ms);
      pauses.push(action);
      return real(() => undefined, ms);
    });
  }

  /** Begins preparations of other resizes, which do not make progress. */
  function beginOthers(count: number): void {
    for (let index = 0; index < count; index += 1)
      void preparations.run(() => new Promise<void>((resolve) => others.push(resolve)));
  }

  /** Whether the pod or a container has another limit than at the start. */
  const hasChanged = (): boolean => runtime.read('memory.max') !== String(300 * MiB) || web.limits()[0] !== 100 * MiB;
  const podUpdate = decode(
    'UpdatePodSandboxResourcesRequest',
    Buffer.from(
      encode('UpdatePodSandboxResourcesRequest', {
        pod_sandbox_id: SANDBOX,
        resources: { memory_limit_in_bytes: BigInt(400 * MiB) },
      }),
    ),
  );
  const ways: readonly [name: string, resize: () => Promise<unknown>][] = [
    ['UpdateContainerResources', () => new ContainerUpdates(web.runtime).update(150 * MiB)],
    ['ResizePod', () => web.resize(desired({ c0: { memory: mi(150) } }))],
    ['UpdatePodSandboxResources', () => updatePod(runtime.node, podUpdate, () => Promise.resolve(Buffer.alloc(0)))],
  ];

  test.each(ways)('%s waits until one of many other resizes is prepared', async (_, resize) => {
    beginOthers(MOST);
    const resized = resize();
    for (let index = 0; index < 200; index += 1) await turn();
    expect(hasChanged()).toBe(false);
    others[0]?.();
    await resized;
    expect(hasChanged()).toBe(true);
  });

  test.each(ways)('%s begins after a pause although the other resizes make no progress', async (_, resize) => {
    beginOthers(MOST);
    const resized = resize();
    while (pauses.length === 0) await turn();
    expect(hasChanged()).toBe(false);
    pauses[0]?.();
    await resized;
    expect(hasChanged()).toBe(true);
  });

  test('UpdateContainerResources lets the next resize begin once it calls the runtime', async () => {
    beginOthers(MOST - 1);
    const updates = new ContainerUpdates(web.runtime);
    await updates.update(150 * MiB, () => {
      beginOthers(1);
      expect(others).toHaveLength(MOST);
      return updates.applies(150 * MiB);
    });
    expect(web.limits()).toEqual([150 * MiB, 200 * MiB]);
  });

  test('ResizePod lets the next resize begin once it calls the runtime', async () => {
    beginOthers(MOST - 1);
    web.runtime.wrapResponder('UpdateContainerResources', (request, obey) => {
      beginOthers(1);
      return obey(request);
    });
    await web.resize(desired({ c0: { memory: mi(150) } }));
    expect(others).toHaveLength(MOST);
    expect(web.limits()).toEqual([150 * MiB, 200 * MiB]);
  });
});

describe('a container that is created and has not started', () => {
  const CREATED = 'e'.repeat(64);

  /** Resizes the created container from 50 MiB, next to c0 with 100 MiB. Returns the steps. */
  async function resizeCreated(podLimit: number, memory: number): Promise<string[]> {
    web.make(String(podLimit * MiB), [100 * MiB]);
    runtime.node.registry.learnContainer({ containerId: CREATED, sandboxId: SANDBOX, name: 'web' });
    runtime.on('ListContainers', () =>
      encode('ListContainersResponse', {
        containers: [
          { id: containerId(0), metadata: { name: 'c0' }, state: 1, created_at: 1n },
          { id: CREATED, metadata: { name: 'web' }, state: 0, created_at: 2n },
        ],
      }),
    );
    const linux = { memory_limit_in_bytes: BigInt(50 * MiB), cpu_quota: 10_000n, cpu_period: 100_000n };
    runtime.describeContainer(CREATED, { metadata: { name: 'web' }, state: 0, resources: { linux } });
    runtime.on('UpdateContainerResources', () => Buffer.alloc(0));
    const { steps } = await web.resize(desired({ web: { memory: mi(memory) } }));
    return steps.map(({ step }) => step.kind);
  }

  test('a created container is not changed once its start has been requested, even before it has a cgroup', async () => {
    const { registry } = runtime.node;
    registry.learnContainer({ containerId: CREATED, sandboxId: SANDBOX, name: 'web' });
    const end = registry.containerStarts(CREATED);
    await expect(resizeCreated(150, 40)).rejects.toMatchObject({
      reason: 'NO_RUNNING_CONTAINER',
      message: 'pod default/web: web is being started: repeat the request when the start has ended',
    });
    expect(runtime.calls).not.toContain('UpdateContainerResources');
    end();
    expect(await resizeCreated(150, 40)).toContain('container');
  });

  test('a resize of a created container raises the pod limit before the new limit is stored', async () => {
    expect(await resizeCreated(150, 400)).toEqual(['pod-memory', 'container']);
    expect(runtime.read('memory.max')).toBe(String(500 * MiB));
  });

  test('a resize of a created container lowers a tight pod limit after the new limit is stored', async () => {
    expect(await resizeCreated(150, 20)).toEqual(['container', 'pod-memory']);
    expect(runtime.read('memory.max')).toBe(String(120 * MiB));
  });
});
