import { once } from 'node:events';
import { connect } from 'node:http2';
import { type Socket, createConnection } from 'node:net';
import { lstatSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type ClientReadableStream, Metadata, type ServiceError } from '@grpc/grpc-js';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Code, Reason, ShimError } from '../../src/core/errors/index.ts';
import { createCounters } from '../../src/observe/counters.ts';
import type { ReadinessReport } from '../../src/observe/index.ts';
import { createLog } from '../../src/observe/log.ts';
import { Backend } from '../../src/runtime/index.ts';
import { type ResizeApi, openResizeApi } from '../../src/api/index.ts';
import { listen } from '../../src/server/index.ts';
import { bytes, cpuShares, cpuWeight, microseconds } from '../../src/core/quantities/index.ts';
import { FakeClock, FakeCore, FakeStore, createResizes, db, reached, web } from '../support/resize/fake-resizes.ts';
import { type Answer, ResizeClient, refusal, refusalOf } from '../support/resize-api-client.ts';
import type { PodIdentity } from '../../src/sandbox/pod-identity.ts';
import type { PodView } from '../../src/resize/report/pod-view.ts';
import { Registry } from '../../src/sandbox/registry.ts';
import type { Resizes } from '../../src/resize/queue/resizes.ts';
import { podDirectory } from '../../src/resize/report/pod-directory.ts';

let folder: string;
let path: string;
let core: FakeCore;
let clock: FakeClock;
let resizes: Resizes;
let registry: Registry;
let api: ResizeApi;
let client: ResizeClient;
let lines: Record<string, unknown>[];
let ready: Set<string>;
let views: Map<string, PodView | ShimError>;
const counters = createCounters();
const closing: (() => unknown)[] = [];

const MiB = 1024 * 1024;
const app = 'c'.repeat(64);
const view: PodView = {
  limits: {
    memory: bytes(256 * MiB),
    memoryUsed: bytes(12345),
    cpu: { quota: 'max', period: microseconds(100_000) },
    weight: cpuWeight(39),
  },
  containers: [
    {
      id: app,
      name: 'app',
      limits: {
        memory: bytes(256 * MiB),
        memoryUsed: bytes(1),
        cpu: { quota: microseconds(50_000), period: microseconds(100_000) },
        shares: cpuShares(512),
        weight: undefined,
      },
    },
  ],
  volumes: [
    {
      name: 'cache',
      size: bytes(64 * MiB),
      used: bytes(10),
      policy: { kind: 'container-share', hundredths: 1250, container: 'app' },
    },
  ],
  outcome: {
    desired: {
      pod: { cpu: { quota: 'max', period: microseconds(100_000) } },
      containers: new Map([[app, { memory: bytes(512 * MiB), shares: cpuShares(1024) }]]),
      volumes: new Map([['cache', { kind: 'share', hundredths: 5000 }]]),
    },
    allocated: { containers: new Map([[app, { memory: bytes(256 * MiB) }]]) },
    actuated: { volumes: new Map([['cache', bytes(64 * MiB)]]), pod: { weight: cpuWeight(39) } },
    volumeErrors: new Map([['cache', { reason: 'VOLUME_IN_USE', message: 'stores 10', at: 1 }]]),
  },
  lastError: { reason: 'UNDO_FAILED', message: 'two values' },
};

const learn = ({ sandboxId, uid, namespace, name }: PodIdentity): void =>
  registry.learnPod({
    sandboxId,
    metadata: { uid, namespace, name },
    cgroupParent: '/kubepods/x',
    annotations: {},
    cpuShares: undefined,
    overhead: { memoryBytes: 0, cpuQuotaMicroseconds: 0, cpuPeriodMicroseconds: 0 },
  });

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'resize-api-'));
  path = join(folder, 'ours/resize.sock');
  core = new FakeCore();
  clock = new FakeClock();
  lines = [];
  ready = new Set();
  views = new Map([[web.sandboxId, view]]);
  refreshed = () => Promise.resolve();
  report = { ready: true, checks: [{ name: 'journal', ready: true, says: 'writable' }] };
  const backend = new Backend(`unix://${folder}/none.sock`);
  registry = new Registry(backend);
  learn(web);
  registry.learnContainer({ containerId: app, sandboxId: web.sandboxId, name: 'app' });
  resizes = createResizes({ core, clock, store: new FakeStore(), bounds: { watchers: 2, unreadEvents: 50 } });
  registry.watch({
    podAdded: () => undefined,
    podRemoved: ({ sandboxId }) => resizes.podRemoved(sandboxId),
    containerRemoved: () => undefined,
  });
  api = await open(0o600);
  client = new ResizeClient(path);
  closing.push(
    () => client.close(),
    () => backend.close(),
    () => rmSync(folder, { recursive: true }),
  );
});
afterEach(async () => {
  client.close();
  await resizes.close();
  await api.close(0);
  for (const close of closing.splice(0)) await close();
});

function open(mode: number): Promise<ResizeApi> {
  const destination = { write: (line: string) => void lines.push(JSON.parse(line) as Record<string, unknown>) };
  const pods = podDirectory({
    registry: {
      pod: (id) => registry.pod(id),
      get pods() {
        return registry.pods;
      },
      containersOf: (sandboxId) => registry.containersOf(sandboxId),
      refresh: () => refreshed(),
    },
    isReady: (sandboxId) => Promise.resolve(ready.has(sandboxId)),
    describePod: (sandboxId) => {
      const found = views.get(sandboxId);
      return found === undefined || found instanceof ShimError
        ? Promise.reject(found ?? new Error('not described'))
        : Promise.resolve(found);
    },
  });
  const log = createLog({ level: 'info', destination });
  const open = (onConnection: (connection: Socket) => void) => listen({ path, rights: { mode }, onConnection, log });
  return openResizeApi({
    path,
    listen: open,
    resizes,
    pods,
    clock,
    log,
    counters,
    readiness: () => Promise.resolve(report),
  });
}

/** What the backend is found to have when it is asked for all. */
let refreshed: () => Promise<void>;
/** What the health check has to go by. */
let report: ReadinessReport;

const byUid = { uid: web.uid };
const toMemory = (memory: string) => ({ app: { limits: { memory } } });
const inUse = new ShimError(Code.FAILED_PRECONDITION, Reason.MEMORY_NOT_RECLAIMABLE, '100 in use', { found: '100' });

async function defer(memory = '64Mi'): Promise<Answer> {
  const answer = client.call('ResizePod', { pod: byUid, containers: toMemory(memory), defer: true });
  (await core.next()).fail(inUse);
  return (await answer)['resize']!;
}

/** A watch that has begun. */
async function watching(request: object = {}): Promise<ClientReadableStream<Answer>> {
  const watch = client.watch(request);
  watch.on('error', () => undefined);
  await once(watch, 'metadata');
  return watch;
}

describe('ResizePod', () => {
  test('returns state, steps with times, and values before and after', async () => {
    const answer = client.call('ResizePod', {
      pod: { sandbox_id: web.sandboxId.slice(0, 12) },
      resources: { limits: { cpu: '2' } },
      containers: { app: { limits: { cpu: '500m', memory: '128Mi' }, requests: { cpu: '250m', memory: '64Mi' } } },
      volumes: { cache: '50%' },
      timeout: { seconds: 60 },
    });
    const call = await core.next();
    expect(call.sandboxId).toBe(web.sandboxId);
    expect(call.options).toMatchObject({ dryRun: false, deadline: clock.now() + 60_000 });
    expect(call.desired).toEqual({
      pod: { cpu: { quota: 200_000, period: 100_000 } },
      containers: new Map([['app', { memory: 128 * MiB, cpu: { quota: 50_000, period: 100_000 }, shares: 256 }]]),
      volumes: new Map([['cache', { kind: 'share', hundredths: 5000 }]]),
      memoryRequests: { containers: { app: 64 * MiB } },
    });
    call.succeed();
    const time = { seconds: clock.now() / 1000 };
    const { resize } = await answer;
    expect(resize).toMatchObject({
      pod: { sandbox_id: web.sandboxId, uid: web.uid, namespace: 'default', name: 'web' },
      state: 'COMPLETED',
      steps: [
        {
          kind: 'POD_MEMORY',
          text: 'pod memory.max 268435456 -> 134217728',
          at: { nanos: 1_500_000 },
          took: { nanos: 250_000 },
        },
      ],
      before: { pod: { limits: { memory: '256Mi', cpu: '500m' }, cpu_max: '50000 100000', memory_max: '268435456' } },
      after: {
        pod: { limits: { memory: '128Mi' } },
        containers: [{ id: app, name: 'app', values: { limits: { cpu: 'max' }, requests: { memory: '64Mi' } } }],
        volumes: [{ name: 'cache', size_bytes: 4096 }],
      },
      created: time,
      changed: time,
      tries: 1,
    });
    expect(await client.call('GetResize', { id: resize!['id'] })).toEqual({ resize });
    expect(lines).toMatchObject([
      { method: '/criresize.v1alpha1.ResizeService/ResizePod', code: 'OK', pod: web.sandboxId, state: 'Completed' },
      { method: '/criresize.v1alpha1.ResizeService/GetResize', code: 'OK', resize: resize!['id'] },
    ]);
    expect(lines).toHaveLength(2);
  });

  test('reports memory requests before and after, independent of later resizes', async () => {
    const app = (memory: string) => ({ pod: byUid, containers: { app: { requests: { memory } } } });
    const resize = async (memory: string): Promise<Answer> => {
      const answer = client.call('ResizePod', app(memory));
      (await core.next()).succeed();
      return (await answer)['resize']!;
    };
    const requests = ({ before, after }: Answer): unknown[] =>
      [before, after].map((values) => (values!['containers'] as unknown as Answer[])[0]!['values']!['requests']);
    const first = await resize('64Mi');
    expect(requests(first)).toEqual([{}, { memory: '64Mi' }]);
    expect(requests(await resize('32Mi'))).toEqual([{ memory: '64Mi' }, { memory: '32Mi' }]);
    expect(await client.call('GetResize', { id: first['id'] })).toEqual({ resize: first });
    const trial = client.call('ResizePod', { ...app('96Mi'), dry_run: true });
    (await core.next()).succeed();
    expect(requests((await trial)['resize']!)).toEqual([{ memory: '32Mi' }, { memory: '96Mi' }]);
  });

  test('that is rejected reports the reason and its id, and is stored', async () => {
    const refused = refusal(client.call('ResizePod', { pod: byUid, containers: toMemory('64Mi') }));
    (await core.next()).fail(inUse);
    const { code, reason, message, about } = await refused;
    expect([code, reason, message, about['found']]).toEqual([9, 'MEMORY_NOT_RECLAIMABLE', '100 in use', '100']);
    const { resize } = await client.call('GetResize', { id: about['resize'] });
    // It would fit later, and nobody waits for that.
    const why = '100 in use; the request does not allow a retry (defer)';
    expect(resize).toMatchObject({ state: 'CANCELED', reason: 'MEMORY_NOT_RECLAIMABLE', message: why });
    expect(lines[0]).toMatchObject({ code: 'FAILED_PRECONDITION', resize: about['resize'], reason });
  });

  test('as a dry run reports the steps and is not stored', async () => {
    const answer = client.call('ResizePod', { pod: byUid, containers: toMemory('64Mi'), dry_run: true });
    const call = await core.next();
    expect(call.options.dryRun).toBe(true);
    call.succeed();
    expect((await answer)['resize']).toMatchObject({
      state: 'PROPOSED',
      after: { pod: { limits: { memory: '128Mi' } } },
    });
    expect(resizes.counts.proposed).toBe(0);
  });

  test('has 30 s, or the deadline of the call', async () => {
    const request = { pod: byUid, containers: toMemory('64Mi') };
    const answer = client.call('ResizePod', request);
    const call = await core.next();
    expect(call.options.deadline).toBe(clock.now() + 30_000);
    call.succeed();
    await answer;
    const until = Date.now() + 20_000;
    const hurried = client.call('ResizePod', { ...request, timeout: { seconds: 600 } }, until);
    // The test's clock stands far before the caller's deadline, so the timeout is the shorter one.
    const second = await core.next();
    expect(second.options.deadline).toBe(clock.now() + 600_000);
    second.succeed();
    await hurried;
  });

  test('continues when the caller cancels', async () => {
    const answer = refusal(
      client.call('ResizePod', { pod: byUid, containers: toMemory('64Mi') }, Date.now() + 200),
    ).catch((error: unknown) => error);
    const call = await core.next();
    expect(String(await answer)).toContain('DEADLINE_EXCEEDED');
    const id = resizes.newestOf(web.sandboxId)?.id ?? '';
    expect((await client.call('GetResize', { id }))['resize']).toMatchObject({ state: 'IN_PROGRESS' });
    call.succeed();
    await reached(resizes, id, 'Completed');
  });

  test('that is deferred is retried until it fits', async () => {
    const watch = await watching({ pod: byUid });
    const events: Answer[] = [];
    watch.on('data', (event: Answer) => events.push(event));
    const { id, state, reason, next_try } = await defer();
    expect([state, reason, Number(next_try!['seconds'])]).toEqual([
      'DEFERRED',
      'MEMORY_NOT_RECLAIMABLE',
      clock.now() / 1000,
    ]);
    clock.pass(1000);
    (await core.next()).succeed();
    while (!events.some(({ state: entered }) => entered?.['state'] === ('COMPLETED' as unknown)))
      await once(watch, 'data');
    expect(events.map((event) => event['state']?.['state'] ?? event['step']?.['kind'])).toEqual([
      ...['PROPOSED', 'IN_PROGRESS', 'DEFERRED', 'IN_PROGRESS', 'POD_MEMORY', 'COMPLETED'],
    ]);
    expect(events.every(({ resize_id }) => resize_id === id)).toBe(true);
    expect((await client.call('GetResize', { id }))['resize']).toMatchObject({ state: 'COMPLETED', tries: 2 });
  });

  test('that is deferred ends when a newer one is applied or the pod is removed', async () => {
    const older = await defer();
    const newer = await defer('32Mi');
    expect((await client.call('GetResize', { id: older['id'] }))['resize']).toMatchObject({
      state: 'CANCELED',
      reason: 'SUPERSEDED',
      message: `superseded by resize ${newer['id'] as unknown as string}`,
    });
    registry.forgetPod(web.sandboxId);
    expect((await client.call('GetResize', { id: newer['id'] }))['resize']).toMatchObject({
      state: 'CANCELED',
      reason: 'POD_GONE',
    });
  });

  test('that fails with an internal error does not reveal its content', async () => {
    const refused = refusal(client.call('ResizePod', { pod: byUid, containers: toMemory('64Mi') }));
    (await core.next()).fail(new TypeError('PASSWORD=hunter2'));
    expect(await refused).toMatchObject({ code: 13, reason: 'INTERNAL' });
    expect(JSON.stringify(lines)).not.toContain('hunter2');
    expect(lines.filter(({ level }) => level === 'error')).toMatchObject([{ error: 'TypeError' }]);
  });
});

describe('a bad request', () => {
  const good = { pod: byUid, containers: toMemory('1Gi') };
  const limits = (values: object, requests: object = {}) => ({
    pod: byUid,
    containers: { app: { limits: values, requests } },
  });
  const long = 'x'.repeat(300);
  test.each([
    ['without a pod', { ...good, pod: undefined }, 'pod'],
    ['with an empty pod', { ...good, pod: {} }, 'pod'],
    ['with an empty uid', { ...good, pod: { uid: '' } }, 'pod.uid'],
    ['with a path as uid', { ...good, pod: { uid: '../x' } }, 'pod.uid'],
    ['with an over-long id', { ...good, pod: { sandbox_id: long } }, 'pod.sandbox_id'],
    ['without a namespace', { ...good, pod: { name: { name: 'web' } } }, 'pod.name.namespace'],
    ['with a line feed in the name', { ...good, pod: { name: { namespace: 'a', name: 'b\n' } } }, 'pod.name.name'],
    ['that asks for nothing', { pod: byUid }, 'resources, containers, volumes'],
    ['with a negative cpu', limits({ cpu: '-2' }), 'containers["app"].limits.cpu'],
    ['with a cpu that is none', limits({ cpu: '1 core' }), 'containers["app"].limits.cpu'],
    ['with more cpu than the kernel takes', limits({ cpu: '1G' }), 'containers["app"].limits.cpu'],
    ['with a negative memory', limits({ memory: '-2' }), 'containers["app"].limits.memory'],
    ['with a memory that is none', limits({ memory: '1MiB' }), 'containers["app"].limits.memory'],
    ['with memory under a page', limits({ memory: '400m' }), 'containers["app"].limits.memory'],
    ['with more memory than can be told', limits({ memory: '16Ei' }), 'containers["app"].limits.memory'],
    ['that removes a request', limits({}, { cpu: '-1' }), 'containers["app"].requests.cpu'],
    ['without end as a request', limits({}, { memory: 'max' }), 'containers["app"].requests.memory'],
    ['with a cpu limit below its request', limits({ cpu: '1' }, { cpu: '1001m' }), 'containers["app"].limits.cpu'],
    [
      'with a memory limit below its request',
      limits({ memory: '1Gi' }, { memory: '2Gi' }),
      'containers["app"].limits.memory',
    ],
    ['with a bad value for the pod', { pod: byUid, resources: { limits: { memory: 'x' } } }, 'resources.limits.memory'],
    ['with a bad name of a container', { pod: byUid, containers: { '../x': {} } }, 'containers["../x"]'],
    [
      'with a name that objects have',
      { pod: byUid, containers: { constructor: { limits: { cpu: 'x' } } } },
      'containers["constructor"].limits.cpu',
    ],
    ['with an over-long value', limits({ memory: long }), 'containers["app"].limits.memory'],
    ['with a bad name of a volume', { pod: byUid, volumes: { 'A B': 'follow' } }, 'volumes["A B"]'],
    ['with no time', { ...good, timeout: { seconds: 0 } }, 'timeout'],
    ['with less than no time', { ...good, timeout: { seconds: -1 } }, 'timeout'],
    ['with too much time', { ...good, timeout: { seconds: 601 } }, 'timeout'],
    ['for trial, and later', { ...good, dry_run: true, defer: true }, 'defer'],
  ])('%s', async (_, request, field) => {
    const { code, reason, message, about } = await refusal(client.call('ResizePod', request));
    expect([code, reason, about['field']]).toEqual([3, 'INVALID_VALUE', field]);
    expect(message.startsWith(`${field}: `)).toBe(true);
    expect(message.length).toBeLessThan(250);
    expect(core.waiting).toBe(0);
  });

  test.each(['', '0', 'half', '0%', '2000%', '50%/A'])('volume size %j', async (size) => {
    const { code, reason, about, message } = await refusal(
      client.call('ResizePod', { pod: byUid, volumes: { cache: size } }),
    );
    expect([code, reason, about['field']]).toEqual([3, 'INVALID_ANNOTATION', 'volumes["cache"]']);
    expect(message.startsWith(`volumes["cache"]: ${JSON.stringify(size)}: `)).toBe(true);
  });

  test('that cannot be decoded', async () => {
    const { code, reason, about } = await refusal(client.raw('ResizePod', Buffer.from([0x0a, 0xff, 1])));
    expect([code, reason, about['field']]).toEqual([3, 'INVALID_VALUE', 'ResizePodRequest']);
  });

  test('with a million entries is not even decoded', async () => {
    const entry = Buffer.from([0x22, 5, 0x0a, 3, 97, 97, 97]);
    const { code, reason, message } = await refusal(client.raw('ResizePod', Buffer.alloc(7_000_000, entry)));
    expect([code, reason]).toEqual([3, 'INVALID_VALUE']);
    expect(message).toBe('ResizePodRequest: "7000000 bytes": a request has at most 262144 bytes');
  });

  test.each([
    ['GetPod', { pod: {} }, 3, 'INVALID_VALUE'],
    ['WatchResizes', { pod: { uid: 'none' } }, 5, 'UNKNOWN_POD'],
    ['GetPod', { pod: { uid: 'none' } }, 5, 'UNKNOWN_POD'],
    ['GetPod', { pod: { name: { namespace: 'other', name: 'web' } } }, 5, 'UNKNOWN_POD'],
    ['GetPod', { pod: { sandbox_id: 'f00' } }, 14, 'BACKEND_UNAVAILABLE'],
    ['GetResize', { id: 'none' }, 5, 'UNKNOWN_RESIZE'],
    ['CancelResize', { id: '' }, 5, 'UNKNOWN_RESIZE'],
  ])('%s of %j', async (method, request, code, reason) => {
    const call = method === 'WatchResizes' ? once(client.watch(request), 'data') : client.call(method, request);
    expect(await refusal(call)).toMatchObject({ code, reason });
  });
});

describe('a pod', () => {
  const second = { ...web, sandboxId: 'ab'.repeat(32) };

  test("is reported with the kernel's values and the stored ones", async () => {
    const { id } = await defer();
    const { pod } = await client.call('GetPod', { pod: { name: { namespace: 'default', name: 'web' } } });
    expect(pod).toMatchObject({
      identity: { sandbox_id: web.sandboxId, uid: web.uid, namespace: 'default', name: 'web' },
      values: {
        pod: {
          limits: { cpu: 'max', memory: '256Mi' },
          cpu_max: 'max 100000',
          memory_max: '268435456',
          cpu_weight: 39,
          memory_used_bytes: 12345,
        },
        containers: [
          {
            id: app,
            name: 'app',
            values: { limits: { cpu: '500m', memory: '256Mi' }, requests: { cpu: '500m' }, cpu_shares: 512 },
          },
        ],
        volumes: [
          {
            ...{ name: 'cache', size_bytes: 64 * MiB, used_bytes: 10, policy: '12.5%/app' },
            last_error: { reason: 'VOLUME_IN_USE', message: 'stores 10' },
          },
        ],
      },
      last_resize: { id, state: 'DEFERRED', reason: 'MEMORY_NOT_RECLAIMABLE', message: '100 in use' },
      last_error: { reason: 'UNDO_FAILED', message: 'two values' },
      desired: {
        pod: { limits: { cpu: 'max' }, cpu_max: 'max 100000' },
        containers: [{ id: app, name: 'app', values: { limits: { memory: '512Mi' }, requests: { cpu: '1' } } }],
        volumes: [{ name: 'cache', policy: '50%' }],
      },
      allocated: { containers: [{ name: 'app', values: { limits: { memory: '256Mi' } } }] },
      actuated: { pod: { cpu_weight: 39 }, volumes: [{ name: 'cache', size_bytes: 64 * MiB }] },
    });
  });

  test('that cannot be read does not hide the others', async () => {
    learn(db);
    views.set(db.sandboxId, new ShimError(Code.FAILED_PRECONDITION, Reason.CGROUP_UNAVAILABLE, 'no memory.max'));
    const { pods } = await client.call('ListPods', {});
    expect(pods).toMatchObject([
      { identity: { name: 'web' }, values: { pod: { limits: { memory: '256Mi' } } } },
      { identity: { name: 'db' }, unreadable: { reason: 'CGROUP_UNAVAILABLE', message: 'no memory.max' } },
    ]);
    expect(await refusal(client.call('GetPod', { pod: { uid: db.uid } }))).toMatchObject({
      reason: 'CGROUP_UNAVAILABLE',
    });
  });

  test('that was created without the shim is looked up in the backend', async () => {
    views.set(db.sandboxId, view);
    refreshed = () => {
      learn(db);
      return Promise.resolve();
    };
    for (const pod of [{ uid: db.uid }, { name: { namespace: 'default', name: 'db' } }])
      expect((await client.call('GetPod', { pod }))['pod']).toMatchObject({ identity: { sandbox_id: db.sandboxId } });
    registry.forgetPod(db.sandboxId);
    expect((await client.call('ListPods', {}))['pods']).toHaveLength(2);
    registry.forgetPod(db.sandboxId);
    const gone = Object.assign(new Error('gone'), { code: 14, details: 'gone', metadata: new Metadata() });
    refreshed = () => Promise.reject(gone);
    for (const [method, request] of [
      ['GetPod', { pod: { uid: db.uid } }],
      ['ListPods', {}],
    ] as const)
      expect(await refusal(client.call(method, request))).toMatchObject({ code: 14, reason: 'BACKEND_UNAVAILABLE' });
    // One that is known is found all the same.
    expect((await client.call('GetPod', { pod: byUid }))['pod']).toMatchObject({ identity: { uid: web.uid } });
  });

  test('of several sandboxes is the one that is ready', async () => {
    learn(second);
    ready.add(web.sandboxId);
    expect((await client.call('GetPod', { pod: byUid }))['pod']).toMatchObject({
      identity: { sandbox_id: web.sandboxId },
    });
    ready.add(second.sandboxId);
    for (const pod of [byUid, { sandbox_id: 'a' }]) {
      const { code, reason, about } = await refusal(client.call('GetPod', { pod }));
      expect([code, reason, about['found']]).toEqual([9, 'AMBIGUOUS_POD', `${web.sandboxId}, ${second.sandboxId}`]);
    }
  });
});

describe('CancelResize', () => {
  test('ends a deferred resize', async () => {
    const { id } = await defer();
    expect((await client.call('CancelResize', { id }))['resize']).toMatchObject({
      state: 'CANCELED',
      reason: 'CANCELLED',
    });
    expect(clock.next).toBeUndefined();
  });
});

describe('WatchResizes', () => {
  test('that is not read is ended with a reason, and others continue', async () => {
    // By plain HTTP/2: a client of grpc-js reads ahead without end.
    const session = connect('http://localhost', { createConnection: () => createConnection(path) });
    const slow = session.request({
      ':method': 'POST',
      ':path': '/criresize.v1alpha1.ResizeService/WatchResizes',
      'content-type': 'application/grpc',
      te: 'trailers',
    });
    slow.end(Buffer.alloc(5));
    await once(slow, 'response');
    const fast = await watching();
    const seen: Answer[] = [];
    fast.on('data', (event: Answer) => seen.push(event));
    expect(await refusal(once(client.watch({}), 'data'))).toMatchObject({ code: 8, reason: 'TOO_MANY_WATCHERS' });
    lines.length = 0;
    const isDropped = (): boolean => lines.some(({ method }) => String(method).endsWith('/WatchResizes'));
    // Long messages fill the client's window soon.
    const long = new ShimError(Code.FAILED_PRECONDITION, Reason.CGROUP_UNAVAILABLE, 'x'.repeat(2000));
    let answered = 0;
    for (; !isDropped(); answered += 1) {
      const answer = refusal(client.call('ResizePod', { pod: byUid, containers: toMemory('64Mi') }));
      (await core.next()).fail(long);
      expect((await answer).reason).toBe('CGROUP_UNAVAILABLE');
      expect(answered).toBeLessThan(200);
    }
    expect(lines.find(({ method }) => String(method).endsWith('/WatchResizes'))).toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
    });
    const trailers = once(slow, 'trailers') as Promise<[Record<string, string>]>;
    slow.resume();
    const [{ 'grpc-status': code, 'grpc-message': message, 'grpc-status-details-bin': details = '' }] = await trailers;
    expect([code, message]).toEqual(['8', expect.stringContaining('watch%20again') as unknown]);
    expect(Buffer.from(details, 'base64').toString()).toContain('WATCHER_TOO_SLOW');
    session.close();
    while (seen.length < answered * 3) await once(fast, 'data');
    fast.cancel();
  });

  test('frees its place when the client disconnects', async () => {
    const [one, two] = [await watching(), await watching()];
    const gone = (): number => lines.filter(({ code }) => code === 'CANCELLED').length;
    one.cancel();
    two.cancel();
    while (gone() < 2) await new Promise(setImmediate);
    (await watching()).cancel();
  });

  test('ends with the shim', async () => {
    const watch = await watching();
    const error = new Promise<ServiceError>((resolve) => watch.once('error', resolve));
    watch.resume();
    await resizes.close();
    expect(refusalOf(await error)).toMatchObject({ code: 14, reason: 'STOPPING' });
    await api.close(10_000);
    await expect(client.call('ListPods', {})).rejects.toMatchObject({ code: 14 });
  });
});

describe('the socket', () => {
  test('keeps serving when its first clients disconnect at once', async () => {
    for (let index = 0; index < 8; index += 1) {
      const socket = createConnection(path);
      await once(socket, 'connect');
      if (index % 2 === 0) socket.write('PRI');
      socket.destroy();
    }
    expect((await client.call('ListPods', {}))['pods']).toHaveLength(1);
  });

  test('has its mode, and is not taken from a running shim', async () => {
    expect((lstatSync(path).mode & 0o777).toString(8)).toBe('600');
    await expect(open(0o600)).rejects.toThrow(/already listens there; stop it or use another path$/);
    expect((await client.call('ListPods', {}))['pods']).toHaveLength(1);
    await api.close(0);
    api = await open(0o660);
    expect((lstatSync(path).mode & 0o777).toString(8)).toBe('660');
  });
});
