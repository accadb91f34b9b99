import { describe, expect, test } from 'vitest';
import type { CgroupTree } from '../../../src/cgroups/tree.ts';
import { type Bytes, type Limit, bytes, microseconds } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { type NodeRoom, assertNodeHasRoom, assertWithinCgroups } from '../../../src/sandbox/admission/node-room.ts';
import type { DesiredPod } from '../../../src/sandbox/plan/resize-request.ts';
import type { PodDescription } from '../../../src/runtime/description.ts';
import type { DeclaredContainer } from '../../../src/sandbox/pods/declared-pod.ts';
import type { PodState } from '../../../src/sandbox/pods/pod-state.ts';
import { mi } from '../../support/quantities/mebibytes.ts';

/** The rules alone, without a pod that is read. */

const pod = {
  cgroupParent: '/tenant/team/podu',
  metadata: { uid: 'u', namespace: 'default', name: 'web' },
} as PodDescription;
const requests = (memory: number, milliCpu: number) => ({ memory: bytes(memory), milliCpu });

describe('the requests of a pod', () => {
  const room = (others = requests(0, 0)): NodeRoom => ({
    allocatable: { memory: { amount: 100, source: 'so' }, milliCpu: { amount: 1000, source: 'so' } },
    others,
  });
  const check =
    (before: [number, number], after: [number, number], given = room()) =>
    () =>
      assertNodeHasRoom(pod, { before: requests(...before), after: requests(...after) }, given);

  test('requests fit up to the allocatable amount of the node, less the requests of the other pods', () => {
    expect(check([1, 1], [100, 1000])).not.toThrow();
    expect(check([1, 1], [100, 1001])).toThrow('a CPU request of 1001m is more than 1: so');
    expect(check([1, 1], [60, 600], room(requests(40, 400)))).not.toThrow();
    expect(check([1, 1], [61, 600], room(requests(40, 400)))).toThrow('a memory request of 61 does not fit now');
    expect(check([1, 1], [60, 601], room(requests(40, 400)))).toThrow('600m is free');
  });

  test('requests that do not rise always fit, each resource separately', () => {
    expect(check([200, 2000], [200, 2000])).not.toThrow();
    expect(check([200, 1], [200, 1000])).not.toThrow();
    expect(check([200, 1], [201, 1])).toThrow('a memory request of 201 is more than 100');
  });

  test('requests fit if the allocatable amount is unknown, each resource separately', () => {
    const unknown: NodeRoom = { allocatable: { milliCpu: { amount: 1000, source: 'so' } }, others: requests(0, 0) };
    expect(check([1, 1], [1e9, 1000], unknown)).not.toThrow();
    expect(check([1, 1], [1e9, 1001], unknown)).toThrow('a CPU request');
  });

  test('a request that can never fit is infeasible, even if another resource would only be deferred', () => {
    expect(check([1, 1], [61, 1001], room(requests(40, 0)))).toThrow('a CPU request of 1001m is more than 1');
  });

  test('the rejection reports that nothing is free if other pods have requested more than the node has', () => {
    expect(check([1, 1], [2, 1], room(requests(150, 0)))).toThrow(/150 of 100 \(so\), 0 is free$/);
  });
});

describe('a memory limit above that of a cgroup that contains the pod', () => {
  const period = microseconds(100_000);
  const NO_CPU = { quota: 'max' as const, period };
  const parts = (limits: Readonly<Record<string, number>>) => ({
    tree: {
      readLimitsNow: (cgroup: string) => ({
        memoryMax: limits[cgroup] === undefined ? 'max' : bytes(limits[cgroup] * MiB),
        cpuMax: NO_CPU,
      }),
    } as unknown as Pick<CgroupTree, 'readLimitsNow'>,
  });
  const declared = (name: string, more: Partial<DeclaredContainer>): DeclaredContainer => ({
    name,
    kind: 'app',
    state: 'declared',
    ...more,
  });
  const state = (memory: Limit<Bytes>, containers: readonly DeclaredContainer[] = []): PodState => ({
    memory: bytes(10 * MiB),
    cpu: NO_CPU,
    weight: undefined,
    overhead: { memory: bytes(0), cpu: NO_CPU },
    containers: [{ id: 'i0', memory, cpu: NO_CPU }],
    volumes: [],
    declared: {
      source: 'spec',
      containers: [declared('c0', { id: 'i0', limits: {} }), ...containers],
      volumes: new Map(),
    },
  });
  const asking = (containers: Readonly<Record<string, Limit<Bytes> | undefined>>, own?: Limit<Bytes>): DesiredPod => ({
    pod: { ...(own !== undefined && { memory: own }) },
    containers: new Map(
      Object.entries(containers).map(([name, memory]) => [name, memory === undefined ? {} : { memory }]),
    ),
    volumes: new Map(),
  });
  const check =
    (
      now: PodState,
      desired: DesiredPod,
      limits: Readonly<Record<string, number>> = { '/tenant': 100, '/tenant/team': 50 },
    ) =>
    () =>
      assertWithinCgroups(parts(limits).tree, pod, now, desired);

  test('a memory limit of a container or a pod above that of a parent cgroup is rejected with the lowest such limit', () => {
    let thrown: unknown;
    try {
      check(state(mi(10)), asking({ c0: mi(51) }))();
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toMatchObject({
      code: 9,
      reason: 'EXCEEDS_NODE',
      message: `container c0: memory.max ${51 * MiB} is more than ${50 * MiB}: cgroup /tenant/team allows no more`,
      context: { pod: 'u', file: 'memory.max', asked: String(51 * MiB), found: String(50 * MiB) },
    });
    expect(check(state(mi(10)), asking({}, mi(51)))).toThrow('pod default/web: memory.max');
    expect(check(state(mi(10)), asking({ c0: mi(51) }), { '/tenant': 50, '/tenant/team': 100 })).toThrow(
      'cgroup /tenant allows',
    );
  });

  test.each<[string, PodState, DesiredPod]>([
    ['one that is as large', state(mi(10)), asking({ c0: mi(50) }, mi(50))],
    ['none', state(mi(10)), asking({ c0: 'max' }, 'max')],
    ['no new one', state(mi(10)), asking({ c0: undefined })],
    ['one that does not rise', state(mi(60)), asking({ c0: mi(60) })],
    ['one that is lowered', state('max'), asking({ c0: mi(60) })],
    ['the present one, which the kernel has rounded', state(mi(60)), asking({ c0: bytes(60 * MiB + 1) })],
    [
      'the declared one of a container that does not run',
      state(mi(1), [declared('c1', { limits: { memory: mi(60) } })]),
      asking({ c1: mi(60) }),
    ],
    [
      'one for a container that does not run and had none',
      state(mi(1), [declared('c1', { limits: {} })]),
      asking({ c1: mi(60) }),
    ],
  ])('assertWithinCgroups allows a memory limit: %s', (_, now, desired) => {
    expect(check(now, desired)).not.toThrow();
  });

  test('a memory limit raised above a parent cgroup is rejected for a container that is not running or unknown', () => {
    const ended = state(mi(1), [declared('c1', { limits: { memory: mi(59) } }), declared('c2', {})]);
    expect(check(ended, asking({ c1: mi(60) }))).toThrow('container c1');
    expect(check(ended, asking({ c2: mi(60) }))).toThrow('container c2');
    expect(check(ended, asking({ c3: mi(60) }))).toThrow('container c3');
    const { declared: _declared, ...undeclared } = ended;
    expect(_declared).toBeDefined();
    expect(check(undeclared, asking({ c0: mi(60) }))).toThrow('container c0');
  });

  test('a memory limit above that of a kubelet cgroup is allowed', () => {
    const kubepods = { ...pod, cgroupParent: '/kubepods/burstable/podu' };
    expect(() =>
      assertWithinCgroups(
        parts({ '/kubepods': 1, '/kubepods/burstable': 1 }).tree,
        kubepods,
        state(mi(10)),
        asking({ c0: mi(60) }),
      ),
    ).not.toThrow();
  });
});
