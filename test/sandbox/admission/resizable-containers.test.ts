import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { bytes, microseconds } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { EntryLimits } from '../../../src/kubelet/checkpoint.ts';
import { milliCpuToShares } from '../../../src/kubelet/formulas.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import type { PodDescription } from '../../../src/runtime/description.ts';
import { assertNoRestart, assertResizable } from '../../../src/sandbox/admission/resizable-containers.ts';
import { resizePod } from '../../../src/sandbox/operations/resize-pod.ts';
import type { DesiredPod } from '../../../src/sandbox/plan/resize-request.ts';
import type { DeclaredContainer } from '../../../src/sandbox/pods/declared-pod.ts';
import type { SpecContainer } from '../../../src/sandbox/pods/pod-spec.ts';
import type { Limits } from '../../../src/sandbox/pods/pod-state.ts';
import { NO_CPU_LIMIT, readDeclaredPod } from '../../../src/sandbox/pods/read-pod.ts';
import type { FakeRuntime } from '../../support/fake-runtime.ts';
import { containerId, SANDBOX } from '../../support/fake-runtime.ts';
import { mi } from '../../support/quantities/mebibytes.ts';
import { NO_OVERHEAD } from '../../support/resize/pods.ts';
import { ResizedPod } from '../../support/resize/resized-pod.ts';

describe('reasons not to resize a container', () => {
  /** Containers that only kubelet can resize: ResizePod rejects changes of their values, and no other changes. */

  const cpu = (milli: number) => ({ quota: microseconds(milli * 100), period: microseconds(100_000) });

  let runtime: FakeRuntime;

  beforeEach(async () => {
    const web = await ResizedPod.start();
    web.make(String(300 * MiB), [100 * MiB, 200 * MiB]);
    ({ runtime } = web);
    mkdirSync(runtime.kubeletRoot, { recursive: true });
  });

  afterEach(() => runtime.close());

  const resize = (containers: Readonly<Record<string, Limits>>, more: Partial<DesiredPod> = {}) => {
    const desired = { pod: {}, containers: new Map(Object.entries(containers)), volumes: new Map(), ...more };
    return resizePod(runtime.node, SANDBOX, desired, { dryRun: false, deadline: performance.now() + 60_000 });
  };

  const write = (name: string, state: object): void =>
    writeFileSync(join(runtime.kubeletRoot, name), JSON.stringify(state));

  describe('the static managers of kubelet', () => {
    beforeEach(() => {
      write('cpu_manager_state', { policyName: 'static', defaultCpuSet: '0', entries: { 'uid-1': { c0: '2-3' } } });
      write('memory_manager_state', {
        policyName: 'Static',
        entries: { 'uid-1': { c1: [{ numaAffinity: [0], type: 'memory', size: 1 }] } },
      });
    });

    test.each([
      ['limit', { cpu: cpu(200) }],
      ['request', { shares: milliCpuToShares(200) }],
    ])('KEP-1287: a CPU resize of a container with exclusive CPUs is rejected: its %s', async (_, limits) => {
      await expect(resize({ c0: limits, c1: { cpu: cpu(50) } })).rejects.toMatchObject({
        code: 9,
        reason: 'EXCLUSIVE_CPUS',
        message:
          'container c0 of pod default/web: the static CPU manager of kubelet has assigned the CPUs 2-3 to it: its CPU cannot be resized',
        context: { container: 'c0', pod: 'default/web', found: '2-3' },
      });
      expect(runtime.read(`${containerId(1)}/cpu.max`)).toBe('10000 100000');
    });

    test.each([
      ['limit', { c1: { memory: mi(250) } }, {}],
      ['request', {}, { memoryRequests: { containers: { c1: mi(50) } } }],
    ])(
      'KEP-1287: a memory resize of a container with pinned memory is rejected: its %s',
      async (_, containers, more) => {
        await expect(resize(containers, more)).rejects.toMatchObject({
          code: 9,
          reason: 'PINNED_MEMORY',
          message:
            'container c1 of pod default/web: the static memory manager of kubelet has pinned its memory to the NUMA nodes 0: its memory cannot be resized',
          context: { container: 'c1', pod: 'default/web', found: '0' },
        });
        expect(runtime.limitOf(1)).toBe(200 * MiB);
      },
    );

    test('with static managers, the other resource and unchanged values of a container are resized', async () => {
      await resize({ c0: { memory: mi(150), cpu: cpu(100) }, c1: { memory: mi(200), cpu: cpu(200) } });
      expect([0, 1].map((index) => runtime.limitOf(index))).toEqual([150 * MiB, 200 * MiB]);
      expect(runtime.read(`${containerId(1)}/cpu.max`)).toBe('20000 100000');
    });

    test('a memory limit that rounds to the present one is not a change of pinned memory', async () => {
      write('memory_manager_state', { policyName: 'none', entries: {} });
      await resize({ c1: { memory: bytes(100_000_000) } });
      // The kernel rounds it down.
      runtime.writeFile(`/kubepods/pod1/${containerId(1)}`, 'memory.max', '99999744');
      write('memory_manager_state', {
        policyName: 'Static',
        entries: { 'uid-1': { c1: [{ numaAffinity: [0], type: 'memory', size: 1 }] } },
      });
      await resize({ c1: { memory: bytes(100_000_000), cpu: cpu(300) } });
      expect(runtime.read(`${containerId(1)}/cpu.max`)).toBe('30000 100000');
    });

    test('assignments by another policy or to another pod do not reject a resize', async () => {
      write('cpu_manager_state', { policyName: 'none', defaultCpuSet: '', entries: { 'uid-1': { c0: '2-3' } } });
      write('memory_manager_state', {
        policyName: 'Static',
        entries: { 'uid-2': { c1: [{ numaAffinity: [0], type: 'memory', size: 1 }] } },
      });
      await resize({ c0: { cpu: cpu(200) }, c1: { memory: mi(250) } });
      expect(runtime.limitOf(1)).toBe(250 * MiB);
    });
  });

  describe('the static managers of kubelet and a Guaranteed pod whose containers share their CPUs', () => {
    const container = (name: string, size: number): SpecContainer => {
      const amounts = { memory: mi(size), milliCpu: 100 };
      const resizePolicy = { cpu: 'NotRequired', memory: 'NotRequired' } as const;
      return { name, kind: 'app', limits: amounts, requests: amounts, resizePolicy };
    };
    beforeEach(() =>
      runtime.specs.set('uid-1', {
        containers: [container('c0', 100), container('c1', 200)],
        limits: {},
        requests: {},
        qosClass: 'Guaranteed',
        priority: 0,
        volumes: new Map(),
      }),
    );
    const upCpu = { c0: { cpu: cpu(200), shares: milliCpuToShares(200) } };
    const upMemory = [{ c0: { memory: mi(150) } }, { memoryRequests: { containers: { c0: mi(150) } } }] as const;

    test('KEP-1287: with the static CPU manager, the CPU of a Guaranteed pod is not resized, and its memory is', async () => {
      write('cpu_manager_state', { policyName: 'static', defaultCpuSet: '0-3' });
      await expect(resize(upCpu)).rejects.toMatchObject({
        code: 9,
        reason: 'EXCLUSIVE_CPUS',
        message:
          'container c0 of pod default/web: with its static CPU manager, kubelet does not resize the CPU of Guaranteed pods',
        context: { container: 'c0', found: 'static' },
      });
      await resize(...upMemory);
      expect(runtime.limitOf(0)).toBe(150 * MiB);
    });

    test('KEP-1287: the limit of a container with CPUs of its own is no change, although it has no quota', async () => {
      write('cpu_manager_state', { policyName: 'static', defaultCpuSet: '0', entries: { 'uid-1': { c0: '1' } } });
      runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'cpu.max', 'max 100000');
      const [containers, more] = upMemory;
      await resize({ c0: { ...containers.c0, cpu: cpu(100) } }, more);
      expect(runtime.limitOf(0)).toBe(150 * MiB);
      expect(runtime.read(`${containerId(0)}/cpu.max`)).toBe('max 100000');
      await expect(resize({ c0: { cpu: cpu(200) } })).rejects.toMatchObject({ code: 9 });
    });

    test('KEP-1287: with the static memory manager, the memory of a Guaranteed pod is not resized, and its CPU is', async () => {
      write('memory_manager_state', { policyName: 'Static', entries: {} });
      await expect(resize(...upMemory)).rejects.toMatchObject({ code: 9, reason: 'PINNED_MEMORY' });
      await resize(upCpu);
      expect(runtime.read(`${containerId(0)}/cpu.max`)).toBe('20000 100000');
    });
  });

  describe('the resizePolicy in the spec', () => {
    const container = (name: string, resizePolicy: SpecContainer['resizePolicy']): SpecContainer => ({
      ...{ name, kind: 'app', limits: {}, requests: { memory: mi(10), milliCpu: 10 } },
      resizePolicy,
    });
    beforeEach(() =>
      runtime.specs.set('uid-1', {
        containers: [
          container('c0', { cpu: 'RestartContainer', memory: 'NotRequired' }),
          container('c1', { cpu: 'NotRequired', memory: 'RestartContainer' }),
        ],
        limits: {},
        requests: {},
        qosClass: 'Burstable',
        priority: 0,
        volumes: new Map(),
      }),
    );

    test.each<[string, string, Readonly<Record<string, Limits>>]>([
      ['cpu', 'c0', { c0: { cpu: cpu(200) }, c1: { cpu: cpu(200) } }],
      ['cpu', 'c0', { c0: { shares: milliCpuToShares(50) } }],
      ['memory', 'c1', { c0: { memory: mi(150) }, c1: { memory: mi(150) } }],
    ])(
      'KEP-1287: a change of %s is rejected if its resizePolicy is RestartContainer',
      async (resource, name, containers) => {
        await expect(resize(containers)).rejects.toMatchObject({
          code: 9,
          reason: 'RESTART_REQUIRED',
          message:
            `container ${name} of pod default/web: its resizePolicy for ${resource} is RestartContainer, and only kubelet, which owns ` +
            'the container, can restart it with other values: resize the pod through the API server (kubectl patch --subresource resize)',
          context: { container: name, pod: 'default/web', found: 'RestartContainer' },
        });
        expect([0, 1].map((index) => runtime.limitOf(index))).toEqual([100 * MiB, 200 * MiB]);
      },
    );

    test('with RestartContainer for one resource, the other resource and unchanged values are resized', async () => {
      await resize({ c0: { memory: mi(150), cpu: cpu(100) }, c1: { memory: mi(200), cpu: cpu(200) } });
      expect(runtime.limitOf(0)).toBe(150 * MiB);
    });

    test('KEP-6030: a resizePolicy of RestartContainer does not reject the resize of a volume', async () => {
      const pod = (await runtime.node.registry.pod(SANDBOX))!;
      const state = await readDeclaredPod(runtime.node, pod, []);
      expect(state.declared?.containers.map(({ resizePolicy }) => resizePolicy?.memory)).toContain('RestartContainer');
      const volumes = new Map([['cache', { kind: 'absolute' as const, size: mi(10) }]]);
      expect(() => assertNoRestart(pod, state, { pod: {}, containers: new Map(), volumes })).not.toThrow();
    });

    test('a resize of a pod without a spec is not restricted by a resizePolicy', async () => {
      runtime.specs.clear();
      await resize({ c0: { cpu: cpu(200) }, c1: { memory: mi(250) } });
      expect(runtime.limitOf(1)).toBe(250 * MiB);
    });
  });

  describe('A8: a limit on swap that kubelet derives from the memory request (LimitedSwap)', () => {
    /** kubelet sets it as a key of `unified`, which the runtime stores. */
    const storedSwap = (swap: string): void =>
      runtime.wrapResponder('ContainerStatus', async (request, obey) => {
        const { status, info } = decode('ContainerStatusResponse', await obey(request));
        const linux = { memory_limit_in_bytes: BigInt(100 * MiB), unified: { 'memory.swap.max': swap } };
        return encode('ContainerStatusResponse', { status: { ...status, resources: { linux } }, info });
      });
    const admitted = (requests: Readonly<Record<string, EntryLimits>>): void =>
      void runtime.allocated.set('uid-1', {
        containers: new Map(Object.keys(requests).map((name) => [name, {}])),
        pod: undefined,
        requests: { containers: new Map(Object.entries(requests)), pod: undefined },
        isComplete: true,
      });
    const requesting = (mebibytes: number) =>
      resize({ c0: { memory: mi(150) } }, { memoryRequests: { containers: { c0: mi(mebibytes) } } });

    test('KEP-1287: a change of the memory request of a container that may swap is rejected', async () => {
      storedSwap(String(64 * MiB));
      admitted({ c0: { memory: mi(50) } });
      await expect(requesting(60)).rejects.toMatchObject({
        code: 9,
        reason: 'SWAP_NOT_RESIZABLE',
        message:
          'container c0 of pod default/web: kubelet has derived its limit on swap, 67108864 bytes, from its memory request, and does ' +
          'not resize the request of a container that may swap',
        context: { container: 'c0', pod: 'default/web', found: String(64 * MiB) },
      });
      expect(runtime.limitOf(0)).toBe(100 * MiB);
    });

    test('KEP-1287: a container that may swap is resized to a new memory limit with its present request', async () => {
      storedSwap(String(64 * MiB));
      admitted({ c0: { memory: mi(50) } });
      await requesting(50);
      expect(runtime.limitOf(0)).toBe(150 * MiB);
    });

    test.each([
      ['no swap', '0', { c0: { memory: mi(50) } }],
      ['all swap, which kubelet does not set', 'max', { c0: { memory: mi(50) } }],
      ['a request that kubelet does not report', String(64 * MiB), {}],
    ])('a change of the memory request is applied with %s', async (_, swap, requests) => {
      storedSwap(swap);
      admitted(requests);
      await requesting(60);
      expect(runtime.limitOf(0)).toBe(150 * MiB);
    });

    test('a change that needs a restart is rejected with RESTART_REQUIRED, even if the container may swap', async () => {
      storedSwap(String(64 * MiB));
      admitted({ c0: { memory: mi(50) } });
      runtime.specs.set('uid-1', {
        containers: [
          {
            ...{ name: 'c0', kind: 'app', limits: {}, requests: {} },
            resizePolicy: { cpu: 'NotRequired', memory: 'RestartContainer' },
          },
        ],
        limits: {},
        requests: {},
        qosClass: 'Burstable',
        priority: 0,
        volumes: new Map(),
      });
      await expect(requesting(60)).rejects.toMatchObject({ reason: 'RESTART_REQUIRED' });
    });
  });
});

const pod = { sandboxId: SANDBOX, metadata: { uid: 'uid-1', namespace: 'default', name: 'web' } } as PodDescription;
const never = { cpu: 'NotRequired', memory: 'NotRequired' } as const;

/** Returns the reason and the message of the rejection of a resize of this container; undefined if there is none. */
function rejection(container: Partial<DeclaredContainer> | undefined): { reason: string; message: string } | undefined {
  const one: DeclaredContainer = { name: 'setup', kind: 'init', state: 'running', id: 'id', ...container };
  const declared = { source: 'spec', containers: container === undefined ? [] : [one], volumes: new Map() } as const;
  const cpu = NO_CPU_LIMIT;
  const state = { memory: 'max', cpu, weight: undefined, overhead: NO_OVERHEAD, containers: [], volumes: [] } as const;
  try {
    assertResizable(pod, { ...state, declared }, 'setup');
    return undefined;
  } catch (error) {
    return error as { reason: string; message: string };
  }
}

test.each(['app', 'sidecar', 'unknown'] as const)('a container of kind %s can be resized in every state', (kind) => {
  for (const state of ['declared', 'created', 'running', 'ended'] as const)
    expect(rejection({ kind, state, resizePolicy: { cpu: 'RestartContainer', memory: 'RestartContainer' } })).toBe(
      undefined,
    );
});

test('a container without a declaration can be resized', () => {
  expect(rejection(undefined)).toBeUndefined();
});

test('KEP-1287: a resize of an ephemeral container is rejected', () => {
  expect(rejection({ kind: 'ephemeral' })).toMatchObject({
    reason: 'EPHEMERAL_CONTAINER_NOT_RESIZABLE',
    message: 'container setup of pod default/web is an ephemeral container: it cannot be resized',
  });
});

describe('an ordinary init container', () => {
  test.each(['created', 'running'] as const)('KEP-1287: an init container is resized while it is %s', (state) => {
    expect(rejection({ state, resizePolicy: never })).toBeUndefined();
    expect(rejection({ state })).toBeUndefined();
  });

  test('KEP-1287: a resize of an init container that has ended is rejected with that reason alone', () => {
    expect(rejection({ state: 'ended', isFixed: true })).toMatchObject({
      reason: 'INIT_CONTAINER_ENDED',
      message: 'container setup of pod default/web is an init container that has ended: it cannot be resized',
    });
  });

  test.each([
    ['kubelet up to 1.35 does not list', { isFixed: true }, 'this kubelet does not resize init containers'],
    [
      'restarts for CPU',
      { resizePolicy: { ...never, cpu: 'RestartContainer' } },
      'its resizePolicy is RestartContainer',
    ],
    [
      'restarts for memory',
      { resizePolicy: { ...never, memory: 'RestartContainer' } },
      'its resizePolicy is RestartContainer',
    ],
    ['has not been created', { state: 'declared' }, 'it has not been created'],
  ] as const)('KEP-1287: a resize of an init container that %s is rejected', (_what, container, why) => {
    const found = rejection(container);
    expect(found?.reason).toBe('INIT_CONTAINER_NOT_RESIZABLE');
    expect(found?.message).toContain(`is an init container, and ${why}`);
  });
});
