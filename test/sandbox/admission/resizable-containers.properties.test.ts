import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ShimError } from '../../../src/core/errors.ts';
import { cpuShares, microseconds } from '../../../src/core/quantities/numbers.ts';
import { milliCpuToShares } from '../../../src/kubelet/formulas.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import type { PodDescription } from '../../../src/runtime/description.ts';
import { assertQosClassStays } from '../../../src/sandbox/admission/qos-class.ts';
import {
  assertNoRestart,
  assertNotAssigned,
  assertResizable,
  assertSwapStays,
} from '../../../src/sandbox/admission/resizable-containers.ts';
import type { DesiredPod } from '../../../src/sandbox/plan/resize-request.ts';
import type {
  Amounts,
  ContainerKind,
  DeclaredContainer,
  QosClass,
  RestartPolicy,
} from '../../../src/sandbox/pods/declared-pod.ts';
import type { LiveContainer, PodState } from '../../../src/sandbox/pods/pod-state.ts';
import { mi } from '../../support/quantities/mebibytes.ts';
import { NO_OVERHEAD, PERIOD } from '../../support/resize/pods.ts';

/**
 * Resizes that kubelet and the API server do not admit, on thousands of random pods and requests: kinds, states, QoS
 * classes, resize policies, limits on swap and assignments of the static managers. The test implements the rules again,
 * as Kubernetes defines them.
 */

const pod = { sandboxId: 's', metadata: { uid: 'u', namespace: 'default', name: 'web' } } as PodDescription;

type Values = Partial<Record<'memory' | 'milliCpu', number>>;
/** One container as a spec declares it. Memory in MiB. */
interface Declared {
  readonly kind: Exclude<ContainerKind, 'unknown'>;
  readonly state: DeclaredContainer['state'];
  readonly limits: Values;
  readonly requests: Values;
  readonly policy: Readonly<Record<'cpu' | 'memory', RestartPolicy>>;
  readonly cpus: boolean;
  readonly nodes: boolean;
  /** Whether kubelet has set a limit on swap (LimitedSwap). */
  readonly swap: boolean;
}

const amount = fc.constantFrom(100, 200, 400);
const optional = fc.option(amount, { nil: undefined, freq: 2 });
const restart = fc.constantFrom('NotRequired' as const, 'NotRequired' as const, 'RestartContainer' as const);
const values = fc
  .record({ memory: optional, milliCpu: optional, request: fc.constantFrom('equal', 'half', 'none') })
  .map(({ memory, milliCpu, request }) => {
    const limits = { ...(memory && { memory }), ...(milliCpu && { milliCpu }) };
    const part = request === 'equal' ? 1 : 0.5;
    // The API server uses the limit as the request if none is set. A container without limits may have no requests.
    const requests =
      memory === undefined && milliCpu === undefined && request === 'none'
        ? {}
        : { memory: (memory ?? 100) * part, milliCpu: (milliCpu ?? 100) * part };
    return { limits, requests };
  });
const container: fc.Arbitrary<Declared> = fc
  .record({
    kind: fc.constantFrom('app', 'app', 'app', 'sidecar', 'init', 'ephemeral'),
    state: fc.constantFrom('running', 'running', 'created', 'ended', 'declared'),
    values,
    policy: fc.record({ cpu: restart, memory: restart }),
    cpus: fc.constantFrom(false, false, true),
    nodes: fc.constantFrom(false, false, true),
    swap: fc.constantFrom(false, false, true),
  } as const)
  .map(({ values: own, kind, ...others }) => ({
    ...others,
    kind,
    ...(kind === 'ephemeral' ? { limits: {}, requests: {} } : own),
  }));

/** New values of one container. A limit of `null` is removed. */
const change = fc.record(
  { memory: fc.option(amount), milliCpu: fc.option(amount), memoryRequest: amount, cpuRequest: amount },
  { requiredKeys: [], noNullPrototype: true },
);
type Change = typeof change extends fc.Arbitrary<infer One> ? One : never;

/** Adds classes, because few random pods would have a class other than Burstable. */
const withClass = fc.constantFrom('any', 'any', 'Guaranteed', 'BestEffort');
const given = fc
  .record({
    containers: fc.array(container, { minLength: 1, maxLength: 4 }),
    place: fc.nat(3),
    change,
    both: fc.constantFrom(false, true),
    qosClass: withClass,
  })
  .map(({ containers, qosClass, change: wanted, both, place }) => {
    const of = ({ kind }: Declared): Values =>
      kind === 'ephemeral' || qosClass === 'BestEffort' ? {} : { memory: 200, milliCpu: 200 };
    const { memory, milliCpu } = wanted;
    return {
      place: place % containers.length,
      containers:
        qosClass === 'any' ? containers : containers.map((one) => ({ ...one, limits: of(one), requests: of(one) })),
      // A pod stays Guaranteed only if limits and requests change together.
      change: both && memory && milliCpu ? { memory, milliCpu, memoryRequest: memory, cpuRequest: milliCpu } : wanted,
    };
  });

const amounts = ({ memory, milliCpu }: Values): Amounts => ({
  ...(memory && { memory: mi(memory) }),
  ...(milliCpu && { milliCpu }),
});
const cpuMax = (milli: number | null | undefined) => ({
  quota: milli === undefined || milli === null ? ('max' as const) : microseconds(milli * 100),
  period: PERIOD,
});

function stateOf(containers: readonly Declared[], qosClass: QosClass): PodState {
  const live = containers.flatMap(({ state, limits, requests }, index): LiveContainer[] =>
    state === 'running'
      ? [
          {
            id: `id${index}`,
            memory: limits.memory === undefined ? 'max' : mi(limits.memory),
            cpu: cpuMax(limits.milliCpu),
            shares: requests.milliCpu === undefined ? cpuShares(2) : milliCpuToShares(requests.milliCpu),
          },
        ]
      : [],
  );
  const declared = containers.map(({ kind, state, limits, requests, policy }, index): DeclaredContainer => {
    const id = state === 'declared' ? {} : { id: `id${index}` };
    const own = { limits: amounts(limits), requests: amounts(requests), resizePolicy: policy };
    return { name: `c${index}`, kind, state, ...id, ...own };
  });
  return {
    memory: 'max',
    cpu: cpuMax(undefined),
    weight: undefined,
    overhead: NO_OVERHEAD,
    containers: live,
    volumes: [],
    declared: { source: 'spec', containers: declared, qosClass, volumes: new Map() },
  };
}

const desiredOf = (name: string, { memory, milliCpu, memoryRequest, cpuRequest }: Change): DesiredPod => ({
  pod: {},
  containers: new Map([
    [
      name,
      {
        ...(memory !== undefined && { memory: memory === null ? ('max' as const) : mi(memory) }),
        ...(milliCpu !== undefined && { cpu: cpuMax(milliCpu) }),
        ...(cpuRequest !== undefined && { shares: milliCpuToShares(cpuRequest) }),
      },
    ],
  ]),
  volumes: new Map(),
  memoryRequests: { containers: memoryRequest === undefined ? {} : { [name]: mi(memoryRequest) } },
});

/** The runtime's stored values of a container. */
const stored = (swap: boolean) => ({
  resources:
    decode(
      'UpdateContainerResourcesRequest',
      encode('UpdateContainerResourcesRequest', {
        linux: { unified: { 'memory.swap.max': swap ? '1048576' : '0' } },
      }),
    ).linux ?? undefined,
});

/** Returns the reason of the rejection; undefined if all rules admit the request. */
function verdict(containers: readonly Declared[], name: string, wanted: Change): string | undefined {
  const state = stateOf(containers, classOf(containers));
  const desired = desiredOf(name, wanted);
  const of = (key: 'cpus' | 'nodes') => (_uid: string, one: string) =>
    containers[Number(one.slice(1))]?.[key] === true ? '1' : undefined;
  const managers = { isStatic: () => false, exclusiveCpus: of('cpus'), memoryNodes: of('nodes') };
  try {
    assertResizable(pod, state, name);
    assertQosClassStays(pod, state, desired);
    assertNotAssigned(managers, pod, state, desired);
    assertNoRestart(pod, state, desired);
    assertSwapStays(pod, state, desired, new Map(containers.map(({ swap }, index) => [`c${index}`, stored(swap)])));
    return undefined;
  } catch (error) {
    if (error instanceof ShimError) return error.reason;
    throw error;
  }
}

/** kubelet pkg/apis/core/v1/helper/qos/qos.go, ComputePodQOS, line by line. */
function classOf(containers: readonly Pick<Declared, 'kind' | 'limits' | 'requests'>[]): QosClass {
  const [requests, limits] = [new Map<string, number>(), new Map<string, number>()];
  let isGuaranteed = true;
  for (const one of containers.filter(({ kind }) => kind !== 'ephemeral')) {
    for (const [resource, quantity] of Object.entries(one.requests))
      if (quantity > 0) requests.set(resource, (requests.get(resource) ?? 0) + quantity);
    for (const [resource, quantity] of Object.entries(one.limits))
      if (quantity > 0) limits.set(resource, (limits.get(resource) ?? 0) + quantity);
    if (Object.keys(one.limits).length < 2) isGuaranteed = false;
  }
  if (requests.size === 0 && limits.size === 0) return 'BestEffort';
  for (const [resource, quantity] of requests) if (limits.get(resource) !== quantity) isGuaranteed = false;
  return isGuaranteed && requests.size === limits.size ? 'Guaranteed' : 'Burstable';
}

/** The same rules, as Kubernetes has them. */
function expected(containers: readonly Declared[], place: number, wanted: Change): string | undefined {
  const now = containers[place]!;
  const { kind, state, policy } = now;
  if (kind === 'ephemeral') return 'EPHEMERAL_CONTAINER_NOT_RESIZABLE';
  if (kind === 'init') {
    if (state === 'ended') return 'INIT_CONTAINER_ENDED';
    if (state === 'declared' || Object.values(policy).includes('RestartContainer'))
      return 'INIT_CONTAINER_NOT_RESIZABLE';
  }
  const after = changed(now, wanted);
  const all = containers.map((one, index) => (index === place ? after : one));
  if (classOf(all) !== classOf(containers)) return 'QOS_CLASS_CHANGES';
  const changes = (resource: 'memory' | 'milliCpu'): boolean =>
    after.limits[resource] !== now.limits[resource] || after.requests[resource] !== now.requests[resource];
  if (now.nodes && changes('memory')) return 'PINNED_MEMORY';
  if (now.cpus && changes('milliCpu')) return 'EXCLUSIVE_CPUS';
  const isRestart =
    (policy.memory === 'RestartContainer' && changes('memory')) ||
    (policy.cpu === 'RestartContainer' && changes('milliCpu'));
  if (isRestart) return 'RESTART_REQUIRED';
  const isRequest = now.requests.memory !== undefined && after.requests.memory !== now.requests.memory;
  return now.swap && isRequest ? 'SWAP_NOT_RESIZABLE' : undefined;
}

function changed(now: Declared, { memory, milliCpu, memoryRequest, cpuRequest }: Change): Declared {
  const set = (of: Values, more: Readonly<Record<string, number | null | undefined>>): Values => {
    const isAsked = ([, value]: [string, number | null | undefined]): boolean => value !== undefined;
    const all: Record<string, number | null | undefined> = {
      ...of,
      ...Object.fromEntries(Object.entries(more).filter(isAsked)),
    };
    return Object.fromEntries(Object.entries(all).flatMap(([key, value]) => (value ? [[key, value]] : [])));
  };
  return {
    ...now,
    limits: set(now.limits, { memory, milliCpu }),
    requests: set(now.requests, { memory: memoryRequest, milliCpu: cpuRequest }),
  };
}

test('KEP-1287: a container resize is rejected for its kind, QoS class, managers, resizePolicy or swap exactly if that rule applies', () => {
  const seen = new Set<string>();
  fc.assert(
    fc.property(given, ({ containers, place, change: wanted }) => {
      const found = verdict(containers, `c${place}`, wanted);
      expect(found).toBe(expected(containers, place, wanted));
      const qosClass = classOf(containers);
      seen.add(found === 'QOS_CLASS_CHANGES' ? `${found}, ${qosClass}` : (found ?? `admitted, ${qosClass}`));
    }),
    { numRuns: 4000 },
  );
  expect([...seen]).toEqual(
    expect.arrayContaining([
      'admitted, Burstable',
      'admitted, Guaranteed',
      'EPHEMERAL_CONTAINER_NOT_RESIZABLE',
      'EXCLUSIVE_CPUS',
      'INIT_CONTAINER_ENDED',
      'INIT_CONTAINER_NOT_RESIZABLE',
      'PINNED_MEMORY',
      'QOS_CLASS_CHANGES, BestEffort',
      'QOS_CLASS_CHANGES, Burstable',
      'QOS_CLASS_CHANGES, Guaranteed',
      'RESTART_REQUIRED',
      'SWAP_NOT_RESIZABLE',
    ]),
  );
});
