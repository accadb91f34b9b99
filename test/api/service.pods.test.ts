import { Metadata } from '@grpc/grpc-js';
import { describe, expect, test } from 'vitest';
import { MiB } from '../../src/core/quantities/index.ts';
import { Code, Reason, ShimError } from '../../src/core/errors/index.ts';
import { db, web } from '../support/resize/fake-resizes.ts';
import { refusal } from '../support/resize-api/client.ts';

import { TestApi, app, byUid } from '../support/resize-api/resize-api.ts';
import { view } from '../support/resize-api/view.ts';

const shim = new TestApi(view);

describe('GetPod and ListPods', () => {
  const second = { ...web, sandboxId: 'ab'.repeat(32) };

  test('report the values of the kernel and the stored ones', async () => {
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
        containers: [{ id: app, name: 'app', values: { limits: { memory: '512Mi' }, requests: { cpu: '1' } } }],
        volumes: [{ name: 'cache', policy: '50%' }],
      },
      allocated: { containers: [{ name: 'app', values: { limits: { memory: '256Mi' } } }] },
      actuated: { pod: { cpu_weight: 39 }, volumes: [{ name: 'cache', size_bytes: 64 * MiB }] },
    });
  });

  test('report the other pods if one cannot be read', async () => {
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

  test('look up a pod in the backend that was created without the shim', async () => {
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

  test('choose the ready one of several sandboxes of a pod', async () => {
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
