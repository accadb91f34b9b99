import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect } from 'node:http2';
import { createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ServiceError } from '@grpc/grpc-js';
import { Client, credentials } from '@grpc/grpc-js';
import { parse } from 'protobufjs';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { Code, Metadata } from '../../../src/core/grpc.ts';
import { noCounters } from '../../../src/core/observe/counters.ts';
import type { ReadinessReport } from '../../../src/core/observe/interfaces.ts';
import { noLog } from '../../../src/core/observe/interfaces.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { type CancelSignal, untilAborted } from '../../../src/core/waiting.ts';
import type { PodDirectory } from '../../../src/sandbox/report/pod-directory.ts';
import type { ResizeApi } from '../../../src/server/api/resize-api.ts';
import { openResizeApi } from '../../../src/server/api/resize-api.ts';
import { listen } from '../../../src/server/listener/listener.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';
import { createResizes, db, FakeCore, FakeStore, reached, web } from '../../support/resize/fake-resizes.ts';
import type { Answer } from '../../support/resize-api/client.ts';
import { refusal, refusalOf } from '../../support/resize-api/client.ts';
import { app, byUid, inUse, TestApi, toMemory } from '../../support/resize-api/resize-api.ts';
import { view } from '../../support/resize-api/view.ts';

describe('the health service', () => {
  // The messages of https://github.com/grpc/grpc/blob/master/doc/health-checking.md.
  const { root } = parse(`syntax = "proto3";
message HealthCheckRequest { string service = 1; }
message HealthCheckResponse {
  enum ServingStatus { UNKNOWN = 0; SERVING = 1; NOT_SERVING = 2; SERVICE_UNKNOWN = 3; }
  ServingStatus status = 1;
}`);
  const requestType = root.lookupType('HealthCheckRequest');
  const responseType = root.lookupType('HealthCheckResponse');
  const RESIZES = 'criresize.v1alpha1.ResizeService';

  let folder: string;
  let api: ResizeApi;
  let client: Client;
  let report: ReadinessReport;

  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'health-'));
    const clock = new FakeClock();
    const pods: PodDirectory = {
      find: () => Promise.reject(new Error('the health check reads no pod')),
      listContainers: () => Promise.resolve(new Map()),
      list: () => Promise.resolve([]),
      describe: () => Promise.reject(new Error('the health check reads no pod')),
      containerName: (_, id) => id,
    };
    const resizes = createResizes({ core: new FakeCore(), clock, store: new FakeStore() });
    const readiness = (): Promise<ReadinessReport> => Promise.resolve(report);
    const parts = { resizes, pods, clock, readiness, peerOf: () => undefined, log: noLog, counters: noCounters };
    const path = join(folder, 'resize.sock');
    api = await openResizeApi({
      path,
      listen: (onConnection) => listen({ path, rights: { mode: 0o600 }, onConnection, log: parts.log }),
      ...parts,
    });
    client = new Client(`unix:${folder}/resize.sock`, credentials.createInsecure());
  });

  afterEach(async () => {
    client.close();
    await api.close(0);
    rmSync(folder, { recursive: true });
  });

  const raw = (method: string, bytes: Uint8Array): Promise<Buffer> =>
    new Promise((resolve, reject) => {
      const same = (value: Buffer): Buffer => value;
      client.makeUnaryRequest(`/grpc.health.v1.Health/${method}`, same, same, Buffer.from(bytes), (error, response) =>
        error === null ? resolve(response ?? Buffer.alloc(0)) : reject(error),
      );
    });

  async function check(service: string): Promise<string> {
    const response = responseType.decode(await raw('Check', requestType.encode({ service }).finish()));
    return responseType.toObject(response, { enums: String, defaults: true })['status'] as string;
  }

  test('Check returns SERVING only while resizes are possible, and always for the empty service', async () => {
    report = { ready: true, checks: [{ name: 'journal', ready: true, says: 'writable' }] };
    expect(await check(RESIZES)).toBe('SERVING');
    report = { ready: false, checks: [{ name: 'journal', ready: false, says: 'no space' }] };
    expect(await check(RESIZES)).toBe('NOT_SERVING');
    expect(await check('')).toBe('SERVING');
  });

  test('Check returns NOT_FOUND for an unknown service', async () => {
    expect(await refusal(check('other'))).toMatchObject({
      code: 5,
      reason: 'UNKNOWN_SERVICE',
      about: { asked: 'other' },
    });
  });

  test('Check rejects a request that cannot be decoded', async () => {
    const bad = Buffer.from([0x0a, 0x7f, 0x01]);
    expect(await refusal(raw('Check', bad))).toMatchObject({ code: 3, reason: 'INVALID_VALUE' });
  });

  test('Watch is not implemented', async () => {
    await expect(raw('Watch', Buffer.alloc(0))).rejects.toMatchObject({ code: 12 });
  });
});

describe('GetPod and ListPods', () => {
  const shim = new TestApi(view);

  afterEach(() => void vi.useRealTimers());

  /** Rejects when the client of a call has gone. */
  const ended = (signal: CancelSignal | undefined): Promise<never> => {
    if (signal === undefined) throw new Error('no signal');
    return untilAborted(new Promise(() => undefined), signal);
  };

  /** The codes of the calls of a method that have ended, as logged. */
  const callsOf = (method: string): unknown[] =>
    shim.lines.filter(({ method: path }) => String(path).endsWith(`/${method}`)).map(({ code }) => code);

  const second = { ...web, sandboxId: 'ab'.repeat(32) };

  test('GetPod returns the values of the kernel and the stored ones', async () => {
    const { id } = await shim.defer();
    const { pod } = await shim.client.call('GetPod', { pod: { name: { namespace: 'default', name: 'web' } } });
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
            name: 'cache',
            size_bytes: 64 * MiB,
            used_bytes: 10,
            policy: '12.5%/app',
            last_error: { reason: 'VOLUME_IN_USE', message: 'stores 10' },
          },
        ],
      },
      last_resize: { id, state: 'DEFERRED', reason: 'MEMORY_NOT_RECLAIMABLE', message: '100 in use' },
      last_error: { reason: 'UNDO_FAILED', message: 'two values' },
      desired: {
        pod: { limits: { cpu: 'max' }, cpu_max: 'max 100000' },
        containers: [
          { id: app, name: 'app', values: { limits: { memory: '512Mi' }, requests: { cpu: '1', memory: '64Mi' } } },
        ],
        volumes: [{ name: 'cache', policy: '50%' }],
      },
      allocated: { containers: [{ name: 'app', values: { limits: { memory: '256Mi' } } }] },
      actuated: { pod: { cpu_weight: 39 }, volumes: [{ name: 'cache', size_bytes: 64 * MiB }] },
    });
  });

  test('ListPods returns the other pods if one pod cannot be read', async () => {
    shim.learn(db);
    shim.views.set(db.sandboxId, new ShimError(Code.FAILED_PRECONDITION, Reason.CGROUP_UNAVAILABLE, 'no memory.max'));
    const { pods } = await shim.client.call('ListPods', {});
    expect(pods).toMatchObject([
      { identity: { name: 'db' }, unreadable: { reason: 'CGROUP_UNAVAILABLE', message: 'no memory.max' } },
      { identity: { name: 'web' }, values: { pod: { limits: { memory: '256Mi' } } } },
    ]);
    expect(await refusal(shim.client.call('GetPod', { pod: { uid: db.uid } }))).toMatchObject({
      reason: 'CGROUP_UNAVAILABLE',
    });
  });

  test.each(['cancels the call', 'has set a deadline'])(
    'KEP-1287: ListPods reads no further pod after a client that %s has gone',
    async (how) => {
      shim.learn(db);
      shim.views.set(db.sandboxId, view);
      const read: string[] = [];
      const reading = Promise.withResolvers<undefined>();
      shim.onDescribe = async (id, signal) => {
        read.push(id);
        reading.resolve(undefined);
        await ended(signal);
      };
      const isCancelled = how === 'cancels the call';
      vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance', 'Date'] });
      const call = isCancelled ? shim.client.cancellable('ListPods', {}) : undefined;
      const answer = call?.answer ?? shim.client.call('ListPods', {}, Date.now() + 300);
      const failed = expect(answer).rejects.toMatchObject({ code: isCancelled ? 1 : 4 });
      await reading.promise;
      call?.cancel();
      if (!isCancelled) vi.advanceTimersByTime(300);
      await failed;
      await expect
        .poll(() => callsOf('ListPods'), LONG_WAIT)
        .toEqual([isCancelled ? 'CANCELLED' : 'DEADLINE_EXCEEDED']);
      expect(read).toEqual([db.sandboxId]);
      expect(shim.lines.filter(({ level }) => level === 'error')).toEqual([]);
    },
  );

  test.each([
    ['ListPods', {}],
    ['GetPod', { pod: { uid: db.uid } }],
  ] as const)('the calls to the backend end when the client cancels %s', async (method, request) => {
    const asked = Promise.withResolvers<CancelSignal | undefined>();
    shim.refresh = (signal) => {
      asked.resolve(signal);
      return ended(signal);
    };
    const { answer, cancel } = shim.client.cancellable(method, request);
    const failed = expect(answer).rejects.toMatchObject({ code: 1 });
    await asked.promise;
    cancel();
    await failed;
    await expect.poll(() => callsOf(method), LONG_WAIT).toEqual(['CANCELLED']);
    expect(shim.lines.filter(({ level }) => level === 'error')).toEqual([]);
  });

  test('ListPods encodes each pod before it reads the next one', async () => {
    const order: string[] = [];
    shim.learn(db);
    for (const [name, { sandboxId }] of Object.entries({ db, web })) {
      const seen = {
        ...view,
        get limits() {
          order.push(`${name} encoded`);
          return view.limits;
        },
      };
      shim.views.set(sandboxId, seen);
    }
    shim.onDescribe = (id) => order.push(`${id === db.sandboxId ? 'db' : 'web'} read`);
    const { pods } = await shim.client.call('ListPods', {});
    expect(pods).toMatchObject([{ identity: { name: 'db' } }, { identity: { name: 'web' } }]);
    expect([...new Set(order)]).toEqual(['db read', 'db encoded', 'web read', 'web encoded']);
  });

  test('ListPods replaces the description of a pod that is read again because containers were added', async () => {
    shim.learn(db);
    shim.views.set(db.sandboxId, view);
    const added = { id: app, pod_sandbox_id: db.sandboxId, state: 1, created_at: 1n, labels: {}, annotations: {} };
    shim.containersAtEnd.set(db.sandboxId, [{ ...added, metadata: { name: 'app', attempt: 0 } }]);
    const read: string[] = [];
    shim.onDescribe = (id) => read.push(id);
    const { pods } = await shim.client.call('ListPods', {});
    expect(pods).toMatchObject([{ identity: { name: 'db' } }, { identity: { name: 'web' } }]);
    expect(pods).toHaveLength(2);
    expect(read).toEqual([db.sandboxId, web.sandboxId, db.sandboxId]);
  });

  test('ListPods stores the encoded pods in buffers of their exact size, not in pools of 64 KiB', async () => {
    shim.learn(db);
    shim.views.set(db.sandboxId, view);
    const concat = vi.spyOn(Buffer, 'concat');
    const { pods } = await shim.client.call('ListPods', {});
    const joined = concat.mock.calls.map(([parts]) => [...parts]);
    concat.mockRestore();
    expect(pods).toHaveLength(2);
    const ofPods = joined.find(
      (parts) => parts.some((part) => Buffer.from(part).includes(db.uid)) && parts.length === 2,
    );
    expect(ofPods?.map(({ buffer, byteLength }) => buffer.byteLength - byteLength)).toEqual([0, 0]);
  });

  test('GetPod and ListPods look up pods in the backend that were created without the shim', async () => {
    shim.views.set(db.sandboxId, view);
    shim.refresh = () => {
      shim.learn(db);
      return Promise.resolve();
    };
    for (const pod of [{ uid: db.uid }, { name: { namespace: 'default', name: 'db' } }])
      expect((await shim.client.call('GetPod', { pod }))['pod']).toMatchObject({
        identity: { sandbox_id: db.sandboxId },
      });
    shim.registry.forgetPod(db.sandboxId);
    expect((await shim.client.call('ListPods', {}))['pods']).toHaveLength(2);
    shim.registry.forgetPod(db.sandboxId);
    const unavailable = Object.assign(new Error('unavailable'), {
      code: 14,
      details: 'unavailable',
      metadata: new Metadata(),
    });
    shim.refresh = () => Promise.reject(unavailable);
    for (const [method, request] of [
      ['GetPod', { pod: { uid: db.uid } }],
      ['ListPods', {}],
    ] as const)
      expect(await refusal(shim.client.call(method, request))).toMatchObject({
        code: 14,
        reason: 'BACKEND_UNAVAILABLE',
      });
    // A known pod does not need the backend.
    expect((await shim.client.call('GetPod', { pod: byUid }))['pod']).toMatchObject({ identity: { uid: web.uid } });
  });

  test('GetPod selects the ready sandbox of a pod, and rejects several ready ones', async () => {
    shim.learn(second);
    shim.ready.add(web.sandboxId);
    expect((await shim.client.call('GetPod', { pod: byUid }))['pod']).toMatchObject({
      identity: { sandbox_id: web.sandboxId },
    });
    shim.ready.add(second.sandboxId);
    for (const pod of [byUid, { sandbox_id: 'a' }]) {
      const { code, reason, about } = await refusal(shim.client.call('GetPod', { pod }));
      expect([code, reason, about['found']]).toEqual([9, 'AMBIGUOUS_POD', `${web.sandboxId}, ${second.sandboxId}`]);
    }
  });
});

describe('ResizePod and CancelResize', () => {
  const shim = new TestApi(view);

  afterEach(() => void vi.useRealTimers());

  describe('ResizePod', () => {
    test('returns state, steps with times, and values before and after', async () => {
      const answer = shim.client.call('ResizePod', {
        pod: { sandbox_id: web.sandboxId.slice(0, 12) },
        resources: { limits: { cpu: '2' } },
        containers: { app: { limits: { cpu: '500m', memory: '128Mi' }, requests: { cpu: '250m', memory: '64Mi' } } },
        volumes: { cache: '50%' },
        timeout: { seconds: 60 },
      });
      const call = await shim.core.next();
      expect(call.sandboxId).toBe(web.sandboxId);
      expect(call.options).toMatchObject({ dryRun: false, deadline: shim.clock.now() + 60_000 });
      expect(call.desired).toEqual({
        pod: { cpu: { quota: 200_000, period: 100_000 } },
        containers: new Map([['app', { memory: 128 * MiB, cpu: { quota: 50_000, period: 100_000 }, shares: 256 }]]),
        volumes: new Map([['cache', { kind: 'share', hundredths: 5000 }]]),
        memoryRequests: { containers: { app: 64 * MiB } },
      });
      call.succeed();
      const time = { seconds: shim.clock.wallTime() / 1000 };
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
      expect(await shim.client.call('GetResize', { id: resize!['id'] })).toEqual({ resize });
      expect(shim.lines).toMatchObject([
        { method: '/criresize.v1alpha1.ResizeService/ResizePod', code: 'OK', pod: web.sandboxId, state: 'Completed' },
        { method: '/criresize.v1alpha1.ResizeService/GetResize', code: 'OK', resize: resize!['id'] },
      ]);
      expect(shim.lines).toHaveLength(2);
    });

    test('reports memory requests before and after, independent of later resizes', async () => {
      const app = (memory: string) => ({ pod: byUid, containers: { app: { requests: { memory } } } });
      const resize = async (memory: string): Promise<Answer> => {
        const answer = shim.client.call('ResizePod', app(memory));
        (await shim.core.next()).succeed();
        return (await answer)['resize']!;
      };
      const requests = ({ before, after }: Answer): unknown[] =>
        [before, after].map((values) => (values!['containers'] as unknown as Answer[])[0]!['values']!['requests']);
      const first = await resize('64Mi');
      expect(requests(first)).toEqual([{}, { memory: '64Mi' }]);
      expect(requests(await resize('32Mi'))).toEqual([{ memory: '64Mi' }, { memory: '32Mi' }]);
      expect(await shim.client.call('GetResize', { id: first['id'] })).toEqual({ resize: first });
      const trial = shim.client.call('ResizePod', { ...app('96Mi'), dry_run: true });
      (await shim.core.next()).succeed();
      expect(requests((await trial)['resize']!)).toEqual([{ memory: '32Mi' }, { memory: '96Mi' }]);
    });

    test('stores a rejected resize, and reports the reason and its id', async () => {
      const rejected = refusal(shim.client.call('ResizePod', { pod: byUid, containers: toMemory('64Mi') }));
      (await shim.core.next()).fail(inUse);
      const { code, reason, message, about } = await rejected;
      expect([code, reason, message, about['found']]).toEqual([9, 'MEMORY_NOT_RECLAIMABLE', '100 in use', '100']);
      const { resize } = await shim.client.call('GetResize', { id: about['resize'] });
      // The decrease may fit later, but the request does not allow a retry.
      const expected = '100 in use; the request does not allow a retry (defer)';
      expect(resize).toMatchObject({ state: 'CANCELED', reason: 'MEMORY_NOT_RECLAIMABLE', message: expected });
      expect(shim.lines[0]).toMatchObject({ code: 'FAILED_PRECONDITION', resize: about['resize'], reason });
    });

    test('ResizePod returns the result of a dry run and does not store it', async () => {
      const answer = shim.client.call('ResizePod', { pod: byUid, containers: toMemory('64Mi'), dry_run: true });
      const call = await shim.core.next();
      expect(call.options.dryRun).toBe(true);
      call.succeed();
      expect((await answer)['resize']).toMatchObject({
        state: 'PROPOSED',
        after: { pod: { limits: { memory: '128Mi' } } },
      });
      expect(shim.resizes.counts.proposed).toBe(0);
    });

    test('ResizePod reports the reason why a dry run would be deferred, if the request allows that', async () => {
      const request = { pod: byUid, containers: toMemory('64Mi'), dry_run: true };
      const answer = shim.client.call('ResizePod', { ...request, defer: true });
      const call = await shim.core.next();
      expect(call.options).toMatchObject({ dryRun: true, waits: true });
      call.fail(inUse);
      const { resize } = await answer;
      expect(resize).toMatchObject({
        state: 'DEFERRED',
        reason: 'MEMORY_NOT_RECLAIMABLE',
        message: '100 in use',
      });
      for (const absent of ['id', 'steps', 'before', 'after', 'next_try']) expect(resize).not.toHaveProperty(absent);
      // A request without a retry is rejected at once, and so is one that can never fit.
      for (const [defer, error] of [
        [false, inUse],
        [true, new ShimError(Code.INVALID_ARGUMENT, Reason.UNKNOWN_CONTAINER, 'no such container')],
      ] as const) {
        const rejected = refusal(shim.client.call('ResizePod', { ...request, defer }));
        (await shim.core.next()).fail(error);
        expect(await rejected).toMatchObject({ code: error.code, reason: error.reason });
      }
      expect(shim.resizes.counts.proposed).toBe(0);
    });

    test('ResizePod ends a dry run when its client has gone', async () => {
      const request = { pod: byUid, containers: toMemory('64Mi'), dry_run: true };
      const { answer, cancel } = shim.client.cancellable('ResizePod', request);
      const failed = expect(answer).rejects.toMatchObject({ code: 1 });
      const trial = await shim.core.next();
      cancel();
      await failed;
      await expect.poll(() => shim.lines.map(({ code }) => code), LONG_WAIT).toEqual(['CANCELLED']);
      trial.succeed();
    });

    test('ResizePod has a timeout of 30 s by default, and the shorter one of timeout and deadline otherwise', async () => {
      const request = { pod: byUid, containers: toMemory('64Mi') };
      const answer = shim.client.call('ResizePod', request);
      const call = await shim.core.next();
      expect(call.options.deadline).toBe(shim.clock.now() + 30_000);
      call.succeed();
      await answer;
      const until = Date.now() + 3_600_000;
      const withDeadline = shim.client.call('ResizePod', { ...request, timeout: { seconds: 600 } }, until);
      // The timeout is shorter than the deadline.
      const second = await shim.core.next();
      expect(second.options.deadline).toBe(shim.clock.now() + 600_000);
      second.succeed();
      await withDeadline;
    });

    test('ResizePod continues after the deadline of the caller', async () => {
      vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance', 'Date'] });
      const answer = refusal(
        shim.client.call('ResizePod', { pod: byUid, containers: toMemory('64Mi') }, Date.now() + 200),
      ).catch((error: unknown) => error);
      const call = await shim.core.next();
      vi.advanceTimersByTime(200);
      expect(String(await answer)).toContain('DEADLINE_EXCEEDED');
      const id = shim.resizes.newestOf(web.sandboxId)?.id ?? '';
      expect((await shim.client.call('GetResize', { id }))['resize']).toMatchObject({ state: 'IN_PROGRESS' });
      call.succeed();
      await reached(shim.resizes, id, 'Completed');
    });

    test('retries a deferred resize until it fits', async () => {
      const watch = await shim.watch({ pod: byUid });
      const events: Answer[] = [];
      watch.on('data', (event: Answer) => events.push(event));
      const { id, state, reason, next_try } = await shim.defer();
      expect([state, reason, Number(next_try!['seconds'])]).toEqual([
        'DEFERRED',
        'MEMORY_NOT_RECLAIMABLE',
        shim.clock.wallTime() / 1000,
      ]);
      shim.clock.pass(1000);
      (await shim.core.next()).succeed();
      while (!events.some(({ state: entered }) => entered?.['state'] === ('COMPLETED' as unknown)))
        await once(watch, 'data');
      expect(events.map((event) => event['state']?.['state'] ?? event['step']?.['kind'])).toEqual([
        ...['PROPOSED', 'IN_PROGRESS', 'DEFERRED', 'IN_PROGRESS', 'POD_MEMORY', 'COMPLETED'],
      ]);
      expect(events.every(({ resize_id }) => resize_id === id)).toBe(true);
      expect((await shim.client.call('GetResize', { id }))['resize']).toMatchObject({ state: 'COMPLETED', tries: 2 });
    });

    test('ends a deferred resize when a newer one is requested or the pod is removed', async () => {
      const older = await shim.defer();
      const newer = await shim.defer('32Mi');
      expect((await shim.client.call('GetResize', { id: older['id'] }))['resize']).toMatchObject({
        state: 'CANCELED',
        reason: 'SUPERSEDED',
        message: `superseded by resize ${newer['id'] as unknown as string}`,
      });
      shim.registry.forgetPod(web.sandboxId);
      expect((await shim.client.call('GetResize', { id: newer['id'] }))['resize']).toMatchObject({
        state: 'CANCELED',
        reason: 'POD_GONE',
      });
    });

    test('does not reveal the content of an internal error', async () => {
      const rejected = refusal(shim.client.call('ResizePod', { pod: byUid, containers: toMemory('64Mi') }));
      (await shim.core.next()).fail(new TypeError('PASSWORD=hunter2'));
      expect(await rejected).toMatchObject({ code: 13, reason: 'INTERNAL' });
      expect(JSON.stringify(shim.lines)).not.toContain('hunter2');
      expect(shim.lines.filter(({ level }) => level === 'error')).toMatchObject([{ error: 'TypeError' }]);
    });
  });

  describe('CancelResize', () => {
    test('ends a deferred resize', async () => {
      const { id } = await shim.defer();
      expect((await shim.client.call('CancelResize', { id }))['resize']).toMatchObject({
        state: 'CANCELED',
        reason: 'CANCELLED',
      });
      expect(shim.clock.next).toBeUndefined();
    });

    test('CancelResize of a client that has gone does not wait for the attempt in progress, and cancels the resize', async () => {
      const { id } = await shim.defer();
      shim.clock.pass(60_000);
      const attempt = await shim.core.next();
      const { answer, cancel } = shim.client.cancellable('CancelResize', { id });
      const failed = expect(answer).rejects.toMatchObject({ code: 1 });
      const isSeen = () => shim.resizes.get(id as unknown as string).state;
      expect(isSeen()).toBe('InProgress');
      await shim.client.call('GetResize', { id });
      cancel();
      await failed;
      const code = () => shim.lines.find(({ method }) => String(method).endsWith('/CancelResize'))?.['code'];
      await expect.poll(code, LONG_WAIT).toBe('CANCELLED');
      attempt.fail(inUse);
      await expect.poll(isSeen, LONG_WAIT).toBe('Canceled');
    });
  });
});

const shim = new TestApi(view);

describe('WatchResizes', () => {
  test('WatchResizes ends a watch that is not read, with a reason, and continues other watches', async () => {
    // Plain HTTP/2, because a client of grpc-js reads ahead without limit.
    const session = connect('http://localhost', { createConnection: () => createConnection(shim.path) });
    const slow = session.request({
      ':method': 'POST',
      ':path': '/criresize.v1alpha1.ResizeService/WatchResizes',
      'content-type': 'application/grpc',
      te: 'trailers',
    });
    slow.end(Buffer.alloc(5));
    await once(slow, 'response');
    const fast = await shim.watch();
    const seen: Answer[] = [];
    fast.on('data', (event: Answer) => seen.push(event));
    expect(await refusal(once(shim.client.watch({}), 'data'))).toMatchObject({ code: 8, reason: 'TOO_MANY_WATCHERS' });
    shim.lines.length = 0;
    const isDropped = (): boolean => shim.lines.some(({ method }) => String(method).endsWith('/WatchResizes'));
    // Long messages fill the client's window quickly.
    const long = new ShimError(Code.FAILED_PRECONDITION, Reason.CGROUP_UNAVAILABLE, 'x'.repeat(2000));
    let answered = 0;
    for (; !isDropped(); answered += 1) {
      while (seen.length < answered * 3) await once(fast, 'data');
      const answer = refusal(shim.client.call('ResizePod', { pod: byUid, containers: toMemory('64Mi') }));
      (await shim.core.next()).fail(long);
      expect((await answer).reason).toBe('CGROUP_UNAVAILABLE');
      expect(answered).toBeLessThan(200);
    }
    expect(shim.lines.find(({ method }) => String(method).endsWith('/WatchResizes'))).toMatchObject({
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

  test('accepts a new watch when another client has disconnected', async () => {
    const [one, two] = [await shim.watch(), await shim.watch()];
    const gone = (): number => shim.lines.filter(({ code }) => code === 'CANCELLED').length;
    one.cancel();
    two.cancel();
    while (gone() < 2) await new Promise(setImmediate);
    (await shim.watch()).cancel();
  });

  test('ends all watches when the shim stops', async () => {
    const watch = await shim.watch();
    const error = new Promise<ServiceError>((resolve) => watch.once('error', resolve));
    watch.resume();
    await shim.resizes.close();
    expect(refusalOf(await error)).toMatchObject({ code: 14, reason: 'STOPPING' });
    await shim.api.close(10_000);
    await expect(shim.client.call('ListPods', {})).rejects.toMatchObject({ code: 14 });
  });
});
