import { once } from 'node:events';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { Code } from '../../../src/core/grpc.ts';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';
import { reached, web } from '../../support/resize/fake-resizes.ts';
import { type Answer, refusal } from '../../support/resize-api/client.ts';

import { TestApi, app, byUid, inUse, toMemory } from '../../support/resize-api/resize-api.ts';
import { view } from '../../support/resize-api/view.ts';

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
    // It may fit later, but the request does not ask for a retry.
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
    // Without a retry it is rejected, and what can never fit is rejected with one.
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
    // The timeout is shorter.
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
