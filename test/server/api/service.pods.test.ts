import { Metadata, Code } from '../../../src/core/grpc.ts';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';
import { db, web } from '../../support/resize/fake-resizes.ts';
import { refusal } from '../../support/resize-api/client.ts';

import { TestApi, app, byUid } from '../../support/resize-api/resize-api.ts';
import { view } from '../../support/resize-api/view.ts';

const shim = new TestApi(view);

afterEach(() => void vi.useRealTimers());

/** Rejects when the client of a call has gone. */
const ended = (signal: AbortSignal | undefined): Promise<never> =>
  new Promise((_, reject) => {
    if (signal === undefined) throw new Error('no signal');
    if (signal.aborted) reject(signal.reason as Error);
    signal.addEventListener('abort', () => reject(signal.reason as Error));
  });

/** The codes of the calls of a method that have ended, as logged. */
const callsOf = (method: string): unknown[] =>
  shim.lines.filter(({ method: path }) => String(path).endsWith(`/${method}`)).map(({ code }) => code);

describe('GetPod and ListPods', () => {
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
    const asked = Promise.withResolvers<AbortSignal | undefined>();
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
