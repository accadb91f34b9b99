import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Bytes, bytes, type Limit, microseconds } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { memoryHighOf } from '../../../src/kubelet/memory-formulas.ts';
import { encode } from '../../../src/runtime/codec.ts';
import { ContainerState } from '../../../src/runtime/messages.ts';
import { resizePod } from '../../../src/sandbox/operations/resize-pod.ts';
import type { DesiredPod } from '../../../src/sandbox/plan/resize-request.ts';
import { describeStep } from '../../../src/sandbox/plan/step.ts';
import { recover } from '../../../src/sandbox/transaction/recover.ts';
import { containerId, FakeRuntime, SANDBOX } from '../../support/fake-runtime.ts';
import { FakeStoringRuntime } from '../../support/fake-storing-runtime.ts';
import { mi } from '../../support/quantities/mebibytes.ts';

/** Memory QoS: ResizePod scales what kubelet derived from limits and requests. Values that a user set stay. */

const text = (count: number): string => String(count * MiB);
/** memory.high by kubelet's formula, of amounts in mebibytes. */
const high = (request: number, limit: number, factor = 0.9): string =>
  String(memoryHighOf({ request: mi(request), limit: mi(limit) }, factor, bytes(4096)));
const CGROUP = `/kubepods/pod1/${containerId(0)}`;

let runtime: FakeRuntime;
let store: FakeStoringRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(text(256), [128 * MiB, 128 * MiB]);
  runtime.writeFile('/kubepods/pod1', 'memory.min', '0');
  runtime.writeFile('/kubepods/pod1', 'memory.low', '0');
  runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
  store = new FakeStoringRuntime(runtime);
});
afterEach(() => runtime.close());

interface Qos {
  readonly 'memory.high'?: string;
  readonly 'memory.min'?: string;
  readonly 'memory.low'?: string;
}

/** Creates c0 with these values of kubelet, and c1 without memory QoS. Both have limits of 128 MiB by default. */
function create(unified: Qos, limit = 128): void {
  const limits = { cpu_quota: 10_000n, cpu_period: 100_000n, memory_limit_in_bytes: BigInt(limit * MiB) };
  const files = { 'memory.min': '0', 'memory.low': '0' };
  store.create(0, { ...limits, unified: { ...unified } }, files);
  store.create(1, { ...limits, memory_limit_in_bytes: BigInt(128 * MiB) }, files);
}

/** kubelet has admitted these requests, in mebibytes. */
function admitted(requests: Readonly<Record<string, number>>, limits: Readonly<Record<string, number>> = {}): void {
  const sizes = (of: Readonly<Record<string, number>>) =>
    Object.entries(of).map(([name, size]): [string, { memory?: Bytes }] => [
      name,
      size === 0 ? {} : { memory: mi(size) },
    ]);
  runtime.allocated.set('uid-1', {
    containers: new Map([...sizes({ c0: 128, c1: 128, ...limits })]),
    pod: undefined,
    requests: { containers: new Map(sizes(requests)), pod: undefined },
    isComplete: true,
  });
}

interface Wanted {
  readonly limit?: Limit<Bytes>;
  readonly request?: number;
  readonly pod?: Limit<Bytes>;
}
const resize = ({ limit, request, pod }: Wanted, more: Partial<DesiredPod> = {}, dryRun = false) =>
  resizePod(
    runtime.node,
    SANDBOX,
    {
      pod: pod === undefined ? {} : { memory: pod },
      containers: new Map([['c0', limit === undefined ? {} : { memory: limit }]]),
      volumes: new Map(),
      memoryRequests: { containers: request === undefined ? {} : { c0: mi(request) } },
      ...more,
    },
    { dryRun, deadline: performance.now() + 60_000 },
  );

const found = (): Record<string, string> =>
  Object.fromEntries(
    ['memory.max', 'memory.high', 'memory.min', 'memory.low'].map((file) => [
      file,
      runtime.read(`${containerId(0)}/${file}`),
    ]),
  );
const podFile = (file: string): string => runtime.read(file);

describe('memory.high of a container', () => {
  test.each([
    ['the state of kubelet', () => admitted({ c0: 64, c1: 64 }), {}],
    ['memory.min, as kubelet 1.35 sets it', () => undefined, { 'memory.min': text(64) }],
    ['memory.low, as TieredReservation sets it', () => undefined, { 'memory.low': text(64) }],
  ])(
    'KEP-2570: memory.high of a container follows its limit up and down if the request is known from %s',
    async (_, know, more) => {
      know();
      create({ 'memory.high': high(64, 128), 'memory.min': '0', 'memory.low': '0', ...more });
      await resize({ limit: mi(256) });
      expect(found()).toMatchObject({ 'memory.max': text(256), 'memory.high': high(64, 256) });
      expect(store.stored(0).unified['memory.high']).toBe(high(64, 256));
      await resize({ limit: mi(96) });
      expect(found()).toMatchObject({
        'memory.max': text(96),
        'memory.high': high(64, 96),
        'memory.low': '0',
        ...more,
      });
    },
  );

  test('memory.high of a container follows a change of the request, also one by an earlier resize', async () => {
    admitted({ c0: 64, c1: 64 });
    create({ 'memory.high': high(64, 128) });
    await resize({ request: 96 });
    expect(found()).toMatchObject({ 'memory.max': text(128), 'memory.high': high(96, 128) });
    await resize({ limit: mi(256) }, { earlierMemoryRequests: { containers: { c0: mi(96) } } });
    expect(found()['memory.high']).toBe(high(96, 256));
  });

  test('memory.high of a container follows if only the resize itself contains the request', async () => {
    create({ 'memory.high': high(64, 128) });
    await resize({ limit: mi(256), request: 64 });
    expect(found()['memory.high']).toBe(high(64, 256));
  });

  test('memory.high is a fraction of the limit if the container has no request', async () => {
    admitted({ c0: 0, c1: 64 });
    create({ 'memory.high': high(0, 128) });
    await resize({ limit: mi(200) });
    expect(found()['memory.high']).toBe(high(0, 200));
  });

  test('memory.high of a container is removed when request and limit become equal', async () => {
    admitted({ c0: 64, c1: 64 });
    create({ 'memory.high': high(64, 128) });
    await resize({ limit: mi(100), request: 100 });
    expect(found()).toMatchObject({ 'memory.max': text(100), 'memory.high': 'max' });
  });

  test('memory.high of a container without a limit is derived from the memory of the node', async () => {
    runtime.writeCgroup('/kubepods', { 'memory.max': text(1000), 'cpu.max': 'max 100000', 'cpu.weight': '100' });
    runtime.writeFile('/kubepods/pod1', 'memory.max', 'max');
    admitted({ c0: 64, c1: 64 }, { c0: 0 });
    runtime.writeFile(CGROUP, 'memory.max', 'max');
    create({ 'memory.high': high(64, 1000) }, 0);
    await resize({ request: 128 });
    expect(found()).toMatchObject({ 'memory.max': 'max', 'memory.high': high(128, 1000) });
    await resize({ limit: mi(256), request: 128 });
    expect(found()).toMatchObject({ 'memory.max': text(256), 'memory.high': high(128, 256) });
    await resize({ limit: 'max', request: 128 });
    expect(found()).toMatchObject({ 'memory.max': 'max', 'memory.high': high(128, 1000) });
  });

  test('memory.high is derived with a different factor if kubelet has used it for all containers', async () => {
    admitted({ c0: 64, c1: 64 });
    create({ 'memory.high': high(64, 128, 0.8), 'memory.min': '0', 'memory.low': '0' });
    await resize({ limit: mi(256) });
    expect(found()['memory.high']).toBe(high(64, 256, 0.8));
  });

  test('a new memory.high is stored by the runtime if the container does not run', async () => {
    admitted({ c0: 64, c1: 64 });
    const linux = { memory_limit_in_bytes: BigInt(128 * MiB), unified: { 'memory.high': high(64, 128) } };
    create({});
    runtime.describeContainer(containerId(0), {
      metadata: { name: 'c0' },
      state: ContainerState.CONTAINER_CREATED,
      resources: { linux },
    });
    runtime.removeCgroup(CGROUP);
    const asked: unknown[] = [];
    runtime.on('UpdateContainerResources', (request) => {
      asked.push(runtime.decodeUpdate(request).linux!.unified);
      return Buffer.alloc(0);
    });
    await resize({ limit: mi(256) });
    expect(asked).toEqual([{ 'memory.high': high(64, 256) }]);
  });
});

describe('KEP-2570: memory QoS values that match no formula stay', () => {
  test.each([
    ['a memory.high that no formula leads to', { 'memory.high': text(100) }, { c0: 64, c1: 64 }],
    ['a memory.high of a container whose request is unknown', { 'memory.high': high(64, 128) }, {}],
    [
      'a memory.high by another factor that kubelet has not set',
      { 'memory.high': high(64, 128, 0.5) },
      { c0: 64, c1: 64 },
    ],
    [
      'a memory.high that matches another factor by a memory.low that nobody has declared',
      { 'memory.high': high(64, 128, 0.5), 'memory.low': text(64) },
      {},
    ],
    ['no memory.high', {}, { c0: 64, c1: 64 }],
  ])('a new memory limit keeps %s', async (_, unified: Qos, requests: Readonly<Record<string, number>>) => {
    if (Object.keys(requests).length > 0) admitted(requests);
    create(unified);
    const before = found();
    await resize({ limit: mi(256) });
    expect(found()).toEqual({ ...before, 'memory.max': text(256) });
  });

  test('a resize keeps a memory.min and a memory.low that differ from the request', async () => {
    admitted({ c0: 64, c1: 64 });
    create({ 'memory.min': text(20), 'memory.low': text(40) });
    await resize({ limit: mi(256), request: 96 });
    expect(found()).toMatchObject({ 'memory.min': text(20), 'memory.low': text(40) });
  });

  test('KEP-2570: a memory.high with another factor stays if the containers of the pod have different factors', async () => {
    admitted({ c0: 64, c1: 64 });
    create({ 'memory.high': high(64, 128, 0.8), 'memory.min': '0' });
    store.create(1, {
      memory_limit_in_bytes: BigInt(128 * MiB),
      unified: { 'memory.high': high(64, 128, 0.7), 'memory.min': '0' },
    });
    await resize({ limit: mi(256) });
    expect(found()['memory.high']).toBe(high(64, 128, 0.8));
  });

  test('a change of only CPU does not change memory.high', async () => {
    admitted({ c0: 64, c1: 64 });
    create({ 'memory.high': high(64, 128) });
    const cpu = { quota: microseconds(20_000), period: microseconds(100_000) };
    const { steps } = await resize({}, { containers: new Map([['c0', { cpu }]]) });
    expect(steps.map(({ step }) => describeStep(step)).filter((step) => step.includes('memory'))).toEqual([]);
  });
});

describe('memory.min and memory.low', () => {
  test.each(['memory.min', 'memory.low'] as const)(
    'KEP-2570: %s that equals the request follows the request, for container and pod',
    async (file) => {
      admitted({ c0: 64, c1: 32 });
      create({ [file]: text(64) });
      runtime.writeFile('/kubepods/pod1', file, text(96));
      await resize({ request: 80 });
      expect([found()[file], podFile(file)]).toEqual([text(80), text(112)]);
      const earlier = { earlierMemoryRequests: { containers: { c0: mi(80) } } };
      const { steps } = await resize({ request: 16, limit: mi(100) }, earlier);
      expect([found()[file], podFile(file)]).toEqual([text(16), text(48)]);
      // At every step, the pod's protection covers that of its containers.
      expect(steps.map(({ step }) => step.kind)).toEqual(['container', 'pod-unified', 'pod-memory']);
    },
  );

  test('memory.min of a Guaranteed pod follows limit and request, although the request is unknown', async () => {
    create({ 'memory.min': text(128) });
    await resize({ limit: mi(160), request: 160 });
    expect(found()).toMatchObject({ 'memory.max': text(160), 'memory.min': text(160), 'memory.high': 'max' });
  });

  test('memory.min and memory.low stay 0 without memory QoS for requests (policy None)', async () => {
    admitted({ c0: 64, c1: 64 });
    create({ 'memory.high': high(64, 128), 'memory.min': '0', 'memory.low': '0' });
    await resize({ request: 96 });
    expect(found()).toMatchObject({ 'memory.min': '0', 'memory.low': '0' });
    expect([podFile('memory.min'), podFile('memory.low')]).toEqual(['0', '0']);
  });

  test('memory.low of a pod stays if another program has set it', async () => {
    admitted({ c0: 64, c1: 32 });
    create({ 'memory.low': text(64) });
    runtime.writeFile('/kubepods/pod1', 'memory.low', text(50));
    await resize({ request: 80 });
    expect([found()['memory.low'], podFile('memory.low')]).toEqual([text(80), text(50)]);
  });
});

describe('a running init container with a sidecar before it and an app container after it', () => {
  const amounts = (limit: number, request: number) => ({
    limits: { memory: mi(limit) },
    requests: { memory: mi(request) },
    resizePolicy: { cpu: 'NotRequired', memory: 'NotRequired' } as const,
  });
  beforeEach(() => {
    runtime.specs.set('uid-1', {
      containers: [
        { name: 'c1', kind: 'sidecar', ...amounts(128, 32) },
        { name: 'c0', kind: 'init', ...amounts(128, 64) },
        { name: 'web', kind: 'app', ...amounts(100, 50) },
      ],
      limits: {},
      requests: {},
      qosClass: 'Burstable',
      priority: 0,
      volumes: new Map(),
    });
    create({ 'memory.high': high(64, 128), 'memory.low': text(64) });
    // kubelet: the init container with the sidecar before it, which is more than sidecar and app container.
    runtime.writeFile('/kubepods/pod1', 'memory.low', text(96));
  });

  test('a raise of an init container raises its derived values and those of the pod', async () => {
    await resize({ limit: mi(256), request: 100 });
    expect(found()).toMatchObject({ 'memory.max': text(256), 'memory.high': high(100, 256), 'memory.low': text(100) });
    expect([podFile('memory.max'), podFile('memory.low')]).toEqual([text(384), text(132)]);
  });

  test('a decrease of an init container lowers the pod only to the needs of the sidecar and the app container', async () => {
    await resize({ limit: mi(64), request: 32 });
    expect(found()).toMatchObject({ 'memory.max': text(64), 'memory.high': high(32, 64), 'memory.low': text(32) });
    expect([podFile('memory.max'), podFile('memory.low')]).toEqual([text(228), text(82)]);
  });
});

describe('memory.high of a pod', () => {
  test('KEP-2570: memory.high of a pod with own limits follows its limit, after a raise and before a decrease', async () => {
    admitted({ c0: 64, c1: 64 });
    create({});
    runtime.writeFile('/kubepods/pod1', 'memory.high', high(128, 256));
    const up = await resize({ pod: mi(512) });
    expect([podFile('memory.max'), podFile('memory.high')]).toEqual([text(512), high(128, 512)]);
    const down = await resize({ pod: mi(300) });
    expect([podFile('memory.max'), podFile('memory.high')]).toEqual([text(300), high(128, 300)]);
    const order = (steps: typeof up.steps): string[] => steps.map(({ step }) => describeStep(step).split(' ')[1]!);
    expect([order(up.steps), order(down.steps)]).toEqual([
      ['memory.max', 'memory.high'],
      ['memory.high', 'memory.max'],
    ]);
  });
});

describe('an unfinished resize with derived values', () => {
  beforeEach(() => {
    admitted({ c0: 64, c1: 64 });
    create({ 'memory.high': high(64, 128), 'memory.low': text(64) });
    runtime.writeFile('/kubepods/pod1', 'memory.low', text(128));
  });

  test('KEP-2570: a failed resize is rolled back with all its derived values', async () => {
    const before = [found(), podFile('memory.low'), podFile('memory.max')];
    const failing = resize(
      { limit: mi(256), request: 96 },
      {
        containers: new Map([
          ['c0', { memory: mi(256) }],
          ['c1', { memory: mi(200) }],
        ]),
      },
    );
    runtime.wrapResponder('UpdateContainerResources', (request, next) => {
      if (runtime.decodeUpdate(request).container_id === containerId(1)) throw new Error('refused');
      return next(request);
    });
    await expect(failing).rejects.toThrow('refused');
    expect([found(), podFile('memory.low'), podFile('memory.max')]).toEqual(before);
    expect(store.stored(0).unified).toEqual({ 'memory.high': high(64, 128), 'memory.low': text(64) });
  });

  test('KEP-2570: recovery after a crash rolls back all derived values', async () => {
    const { steps } = await resize({ limit: mi(256), request: 96 }, {}, true);
    const pod = (await runtime.node.registry.pod(SANDBOX))!;
    const before = [found(), podFile('memory.low'), podFile('memory.max')];
    await runtime.node.journal.begin(
      pod,
      [
        ...steps.map(({ step }) => step),
        {
          kind: 'pod-memory',
          from: mi(384),
          to: mi(400),
        },
      ],
      { volumes: new Map() },
    );
    runtime.writeFile('/kubepods/pod1', 'memory.max', text(384));
    runtime.writeFile('/kubepods/pod1', 'memory.low', text(160));
    const unified = { 'memory.high': high(96, 256), 'memory.low': text(96) };
    store.create(0, { memory_limit_in_bytes: BigInt(256 * MiB), unified });
    await recover(runtime.node);
    expect([found(), podFile('memory.low'), podFile('memory.max')]).toEqual(before);
  });

  test('a dry run reports the derived values and writes none', async () => {
    const before = found();
    const { steps } = await resize({ limit: mi(256) }, {}, true);
    expect(steps.map(({ step }) => describeStep(step)).join()).toContain(
      `memory.high ${high(64, 128)} -> ${high(64, 256)}`,
    );
    expect(found()).toEqual(before);
  });
});
