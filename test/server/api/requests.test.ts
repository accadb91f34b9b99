import { once } from 'node:events';
import { describe, expect, test } from 'vitest';
import { refusal } from '../../support/resize-api/client.ts';

import { byUid, TestApi, toMemory } from '../../support/resize-api/resize-api.ts';
import { view } from '../../support/resize-api/view.ts';

const shim = new TestApi(view);

describe('invalid requests to the resize API', () => {
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
    ['without any change', { pod: byUid }, 'resources, containers, volumes'],
    ['with a negative CPU limit', limits({ cpu: '-2' }), 'containers["app"].limits.cpu'],
    ['with a CPU limit that is no quantity', limits({ cpu: '1 core' }), 'containers["app"].limits.cpu'],
    ['with a larger CPU limit than the kernel accepts', limits({ cpu: '1G' }), 'containers["app"].limits.cpu'],
    ['with a negative memory limit', limits({ memory: '-2' }), 'containers["app"].limits.memory'],
    ['with a memory limit that is no quantity', limits({ memory: '1MiB' }), 'containers["app"].limits.memory'],
    ['with a memory limit of less than a page', limits({ memory: '400m' }), 'containers["app"].limits.memory'],
    [
      'with a larger memory limit than can be represented',
      limits({ memory: '16Ei' }),
      'containers["app"].limits.memory',
    ],
    ['that removes a request', limits({}, { cpu: '-1' }), 'containers["app"].requests.cpu'],
    ['with max as a request', limits({}, { memory: 'max' }), 'containers["app"].requests.memory'],
    ['with a CPU limit below its request', limits({ cpu: '1' }, { cpu: '1001m' }), 'containers["app"].limits.cpu'],
    [
      'with a memory limit below its request',
      limits({ memory: '1Gi' }, { memory: '2Gi' }),
      'containers["app"].limits.memory',
    ],
    [
      'with an invalid value for the pod',
      { pod: byUid, resources: { limits: { memory: 'x' } } },
      'resources.limits.memory',
    ],
    ['with an invalid container name', { pod: byUid, containers: { '../x': {} } }, 'containers["../x"]'],
    [
      'with the name of an object property as container name',
      { pod: byUid, containers: { constructor: { limits: { cpu: 'x' } } } },
      'containers["constructor"].limits.cpu',
    ],
    ['with an over-long value', limits({ memory: long }), 'containers["app"].limits.memory'],
    ['with an invalid volume name', { pod: byUid, volumes: { 'A B': 'follow' } }, 'volumes["A B"]'],
    ['with a timeout of 0', { ...good, timeout: { seconds: 0 } }, 'timeout'],
    ['with a negative timeout', { ...good, timeout: { seconds: -1 } }, 'timeout'],
    ['with a timeout above the maximum', { ...good, timeout: { seconds: 601 } }, 'timeout'],
  ])('rejects a ResizePod request %s', async (_, request, field) => {
    const { code, reason, message, about } = await refusal(shim.client.call('ResizePod', request));
    expect([code, reason, about['field']]).toEqual([3, 'INVALID_VALUE', field]);
    expect(message.startsWith(`${field}: `)).toBe(true);
    expect(message.length).toBeLessThan(250);
    expect(shim.core.waiting).toBe(0);
  });

  test.each(['9223372036854775807', '-9223372036854775808', '9007199254740993'])(
    'the error of a ResizePod request with a timeout of %ss quotes this number exactly',
    async (seconds) => {
      const request = { ...good, timeout: { seconds, nanos: 0 } };
      const { message, about } = await refusal(shim.client.call('ResizePod', request));
      expect(message).toContain(`${seconds}s 0ns`);
      expect(about['asked']).toBe(`${seconds}s 0ns`);
    },
  );

  test.each(['', '0', 'half', '0%', '2000%', '50%/A'])(
    'KEP-1287: a resize request with the invalid volume size %j is rejected',
    async (size) => {
      const { code, reason, about, message } = await refusal(
        shim.client.call('ResizePod', { pod: byUid, volumes: { cache: size } }),
      );
      expect([code, reason, about['field']]).toEqual([3, 'INVALID_ANNOTATION', 'volumes["cache"]']);
      expect(message.startsWith(`volumes["cache"]: ${JSON.stringify(size)}: `)).toBe(true);
    },
  );

  test('rejects a ResizePod request that cannot be decoded', async () => {
    const { code, reason, about } = await refusal(shim.client.raw('ResizePod', Buffer.from([0x0a, 0xff, 1])));
    expect([code, reason, about['field']]).toEqual([3, 'INVALID_VALUE', 'ResizePodRequest']);
  });

  test('rejects a request with a million entries before it is decoded', async () => {
    const entry = Buffer.from([0x22, 5, 0x0a, 3, 97, 97, 97]);
    const { code, reason, message } = await refusal(shim.client.raw('ResizePod', Buffer.alloc(7_000_000, entry)));
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
  ])('rejects %s with the request %j', async (method, request, code, reason) => {
    const call =
      method === 'WatchResizes' ? once(shim.client.watch(request), 'data') : shim.client.call(method, request);
    expect(await refusal(call)).toMatchObject({ code, reason });
  });
});
