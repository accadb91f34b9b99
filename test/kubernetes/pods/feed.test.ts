import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type LogFields, noLog } from '../../../src/core/observe/interfaces.ts';
import { apiOf } from '../../../src/kubernetes/client/api.ts';
import { openConnection } from '../../../src/kubernetes/client/connection.ts';
import type { PodAudience } from '../../../src/kubernetes/pods/audience.ts';
import { feedPods, Reach } from '../../../src/kubernetes/pods/feed.ts';
import type { ApiPod, ApiPodIdentity } from '../../../src/kubernetes/pods/pod.ts';
import { podWatch } from '../../../src/kubernetes/pods/pod-watch.ts';
import { eventually, FakeClock } from '../../support/fake-clock.ts';
import { FakeApiServer, type ServedPod } from '../../support/kubernetes/fake-api-server.ts';

const KEY = 'volume.cri-resize-shim.io/';
let folder: string;
let server: FakeApiServer;
let clock: FakeClock;
let reach: Reach;
let log: string[];
/** The calls to the audience, and the pods that follow from them. */
let calls: string[];
let pods: Map<string, ApiPod>;
let stop: AbortController;
let fed: Promise<void> = Promise.resolve();

const pod = (name: string, more: Partial<ServedPod> = {}): ServedPod => ({
  uid: `uid-${name}`,
  name,
  namespace: 'default',
  nodeName: 'node-1',
  annotations: {},
  ...more,
});

const audience: PodAudience = {
  replace(all) {
    calls.push(`all ${all.map(({ name }) => name).join()}`);
    pods = new Map(all.map((one) => [one.uid, one]));
  },
  present(one) {
    calls.push(`present ${one.name}`);
    pods.set(one.uid, one);
  },
  gone({ uid }) {
    calls.push(`gone ${uid}`);
    pods.delete(uid);
  },
};

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'feed-'));
  server = await new FakeApiServer().reserve();
  clock = new FakeClock({ endsWaits: true });
  log = [];
  calls = [];
  pods = new Map();
  const say = (fields: LogFields, text: string): void =>
    void log.push(`${text} ${(fields.error as string | undefined) ?? ''}`.trim());
  reach = new Reach({ ...noLog, info: say, warn: say }, 'node-1');
  stop = new AbortController();
});

afterEach(async () => {
  stop.abort();
  await fed;
  await server.stop();
  rmSync(folder, { recursive: true });
});

function feed(): void {
  const kubeconfig = server.kubeconfig(join(folder, 'config'));
  const watch = podWatch(
    apiOf(() => openConnection(kubeconfig)),
    'node-1',
  );
  const skipped = (one?: ApiPodIdentity): void => void calls.push(`skipped ${one?.name ?? 'unknown'}`);
  fed = feedPods({ watch, audience, reach, skipped, clock, random: () => 0 }, stop.signal);
}

const receives = (line: string): Promise<void> =>
  eventually(
    () => calls.includes(line),
    () => `calls ${calls.join('; ')}`,
  );
/** Waits until the server has a watch and the client reports it. */
async function watched(): Promise<void> {
  await server.until(() => server.watching > 0);
  await eventually(() => reach.check().ready);
}

describe('the pods of a node', () => {
  test('lists the pods of this node from the cache of the API server, and then watches from that version', async () => {
    await server.start();
    for (let index = 0; index < 24; index += 1) server.set(pod(`web-${index}`));
    server.set(pod('elsewhere', { nodeName: 'node-2' }));
    feed();
    await watched();
    expect(pods.size).toBe(24);
    const lists = server.of('list');
    expect(lists.map(({ query }) => [query['resourceVersion'], query['limit']])).toEqual([['0', undefined]]);
    expect(lists.every(({ query }) => query['fieldSelector'] === 'spec.nodeName=node-1')).toBe(true);
    expect(lists[0]?.accept).toBe('application/json');
    const [watch] = server.of('watch');
    expect(watch?.accept).toBe('application/json');
    expect(watch?.query).toMatchObject({
      fieldSelector: 'spec.nodeName=node-1',
      allowWatchBookmarks: 'true',
      resourceVersion: '125',
    });
    server.set(pod('late'));
    server.annotate('uid-late', { [`${KEY}cache`]: '50%', other: 'x' });
    server.delete('uid-web-7');
    await receives('gone uid-web-7');
    expect(calls.slice(1)).toEqual(['present late', 'present late', 'gone uid-web-7']);
    expect(reach.check()).toEqual({
      name: 'kubernetes',
      ready: true,
      says: 'pod annotations of node node-1 are watched',
    });
  });

  test('stores only the identity, the annotations of the shim and the resources in the spec of a pod', async () => {
    await server.start();
    const annotations = { [`${KEY}cache`]: '50%', 'kubectl.kubernetes.io/last-applied-configuration': 'long' };
    const spec = { containers: [{ name: 'web', image: 'web:1', env: [{ name: 'SECRET', value: 'hunter2' }] }] };
    server.set(pod('web', { annotations, spec }));
    server.set(pod('ending', { deletionTimestamp: '2026-01-01T00:00:00Z' }));
    const mirror = { 'kubernetes.io/config.mirror': 'uid-static' };
    const ownerReferences = [{ apiVersion: 'v1', kind: 'Node', name: 'node-1', uid: 'uid-node', controller: true }];
    server.set(pod('mirror', { annotations: mirror, ownerReferences }));
    feed();
    await watched();
    const ofSpec = { containers: [], limits: {}, requests: {}, qosClass: undefined, priority: 0, volumes: new Map() };
    const base = { namespace: 'default', isMirror: false, isEnding: false, volumes: {}, spec: ofSpec };
    const resizePolicy = { cpu: 'NotRequired', memory: 'NotRequired' };
    const containers = [{ name: 'web', kind: 'app', limits: {}, requests: {}, resizePolicy }];
    expect([...pods.values()]).toEqual([
      { ...base, uid: 'uid-web', name: 'web', volumes: { cache: '50%' }, spec: { ...ofSpec, containers } },
      { ...base, uid: 'uid-ending', name: 'ending', isEnding: true },
      // The uid of the running pod is the one that kubelet derives from its file.
      { ...base, uid: 'uid-static', name: 'mirror', isMirror: true },
    ]);
  });

  test('H2: a pod that only claims to be a mirror pod does not take the identity of another pod', async () => {
    await server.start();
    const annotations = { 'kubernetes.io/config.mirror': 'uid-victim', [`${KEY}cache`]: '1Mi' };
    server.set(pod('attacker', { namespace: 'tenant', annotations }));
    // The author of a pod may also set an owner, but the pod still has another namespace and name than the victim.
    const ownerReferences = [{ apiVersion: 'v1', kind: 'Node', name: 'node-1', uid: 'uid-node' }];
    server.set(pod('owned', { namespace: 'tenant', annotations, ownerReferences }));
    // The mirror pod of another node.
    const elsewhere = [{ apiVersion: 'v1', kind: 'Node', name: 'node-2', uid: 'uid-node-2' }];
    server.set(pod('elsewhere', { namespace: 'tenant', annotations, ownerReferences: elsewhere }));
    feed();
    await watched();
    expect(
      [...pods.values()].map(({ uid, namespace, name, isMirror }) => ({ uid, namespace, name, isMirror })),
    ).toEqual([
      { uid: 'uid-attacker', namespace: 'tenant', name: 'attacker', isMirror: false },
      { uid: 'uid-victim', namespace: 'tenant', name: 'owned', isMirror: true },
      { uid: 'uid-elsewhere', namespace: 'tenant', name: 'elsewhere', isMirror: false },
    ]);
  });
});

/** Each of these characters is six in the JSON of Go. */
const escaped = (count: number): object => ({
  containers: [{ name: 'a', args: ['<'.repeat(count)] }],
});
const MB = 1_000_000;
const volumesOf = (name: string): ApiPod['volumes'] | undefined => pods.get(`uid-${name}`)?.volumes;

describe('a pod with a changing claim to be a mirror pod', () => {
  const annotations = { 'kubernetes.io/config.mirror': 'uid-claimed' };
  const ownerReferences = [{ apiVersion: 'v1', kind: 'Node', name: 'node-1', uid: 'uid-node' }];

  test('a pod that starts or stops claiming to be a mirror pod is known only by its current uid, and is forgotten when it is deleted', async () => {
    await server.start();
    server.set(pod('web', { annotations, ownerReferences }));
    feed();
    await watched();
    expect([...pods.keys()]).toEqual(['uid-claimed']);
    // The API server rejects a change of the annotation, but not a change of the owner.
    for (const owners of [[], ownerReferences, []]) {
      server.set(pod('web', { annotations, ownerReferences: owners }));
      const uid = owners.length === 0 ? 'uid-web' : 'uid-claimed';
      await eventually(() => [...pods.keys()].join() === uid);
    }
    server.delete('uid-web');
    await eventually(() => pods.size === 0);
    expect(calls).toEqual([
      'all web',
      ...['uid-claimed', 'uid-web', 'uid-claimed'].flatMap((uid) => [`gone ${uid}`, 'present web']),
      'gone uid-web',
    ]);
  });

  test('a pod that claims to be a mirror pod is forgotten when it becomes too large', async () => {
    await server.start();
    server.set(pod('web', { annotations, ownerReferences }));
    feed();
    await watched();
    server.set(pod('web', { annotations, ownerReferences, spec: escaped(2.2 * MB) }));
    await receives('skipped web');
    expect(calls).toEqual(['all web', 'gone uid-claimed', 'skipped web']);
  });
});

describe('a pod with a large object', () => {
  test('a pod as large as the largest objects of etcd does not stop the list or the watch', async () => {
    await server.start();
    for (let index = 0; index < 4; index += 1)
      server.set(pod(`large-${index}`, { spec: escaped(1.4 * MB), annotations: { [`${KEY}cache`]: '10%' } }));
    server.set(pod('web'));
    feed();
    await watched();
    expect(pods.size).toBe(5);
    server.set(pod('late', { spec: escaped(1.4 * MB), annotations: { [`${KEY}cache`]: '20%' } }));
    server.annotate('uid-web', { [`${KEY}cache`]: '50%' });
    await receives('present web');
    expect(['large-3', 'late', 'web'].map(volumesOf)).toEqual([{ cache: '10%' }, { cache: '20%' }, { cache: '50%' }]);
    expect(log).toEqual(['watch of pod annotations started']);
  });

  test('a pod larger than any object of etcd is skipped and reported, in the list and in the watch', async () => {
    await server.start();
    server.set(pod('huge', { spec: escaped(2.2 * MB) }));
    server.set(pod('grows'));
    server.set(pod('web'));
    feed();
    await watched();
    expect(calls).toEqual(['all grows,web', 'skipped huge']);
    server.set(pod('grows', { spec: escaped(2.2 * MB) }));
    await receives('skipped grows');
    server.cut();
    await server.until(() => server.of('watch').length === 2);
    server.annotate('uid-web', { [`${KEY}cache`]: '50%' });
    await receives('present web');
    expect(volumesOf('web')).toEqual({ cache: '50%' });
    // The watch continues after the object, which the server does not send again.
    expect(server.of('watch')[1]?.query['resourceVersion']).toBe('104');
    expect(calls.slice(2)).toEqual(['gone uid-grows', 'skipped grows', 'present web']);
  });

  test('a pod that is too large is skipped without its names if they do not come first, and the watch continues', async () => {
    await server.start();
    server.set(pod('web'));
    feed();
    await watched();
    const text = `{"type":"MODIFIED","object":{"spec":"${'x'.repeat(13 * MB)}","metadata":{}}}\n`;
    server.write(text);
    await receives('skipped unknown');
    server.annotate('uid-web', { [`${KEY}cache`]: '50%' });
    await receives('present web');
    expect(server.of('watch')).toHaveLength(1);
  });
});

describe('a watch of pods', () => {
  beforeEach(async () => {
    await server.start();
    server.set(pod('web'));
    feed();
    await watched();
  });

  test('a watch of pods continues after a disconnect from its last version, without losing changes', async () => {
    server.set(pod('before'));
    await receives('present before');
    server.cut();
    await server.until(() => server.watching === 0);
    server.set(pod('meanwhile'));
    await receives('present meanwhile');
    expect(server.of('list')).toHaveLength(1);
    expect(server.of('watch').map(({ query }) => query['resourceVersion'])).toEqual(['101', '102']);
    expect(calls).toEqual(['all web', 'present before', 'present meanwhile']);
    expect(clock.waits).toEqual([500]);
  });

  test('a watch of pods continues immediately from the last bookmark when its time is over', async () => {
    server.bookmark();
    clock.pass(300_000);
    server.endWatches();
    await server.until(() => server.of('watch').length === 2);
    expect(server.of('watch')[1]?.query['resourceVersion']).toBe('111');
    expect(clock.waits).toEqual([]);
  });

  test.each(['status', 'event'] as const)(
    'a watch of pods with a version that is too old (410 as %s) restarts with a list, without a warning',
    async (by) => {
      server.expire(by);
      server.set(pod('new'));
      server.cut();
      await receives('all web,new');
      await watched();
      expect(server.of('list').map(({ query }) => query['resourceVersion'])).toEqual(['0', '101']);
      expect(log.filter((line) => line.includes('410'))).toEqual([]);
      expect(reach.check().ready).toBe(true);
    },
  );

  test('a watch of pods that repeatedly ends at once is retried with growing delays', async () => {
    for (let round = 0; round < 4; round += 1) {
      await watched();
      server.endWatches();
      await server.until(() => server.watching === 0);
    }
    await server.until(() => server.of('watch').length === 5);
    expect(clock.waits).toEqual([500, 1000, 2000, 4000]);
  });

  test('a watch of pods that receives other objects restarts, and does not log their content', async () => {
    server.write('{"type":"ADDED","object":{"secret":"hunter2"}}\n');
    await eventually(() => log.length === 3);
    expect(log).toContain('watch of pod annotations failed; retrying the response is not a list or watch of pods');
    expect(log.join()).not.toContain('hunter2');
  });
});

describe('an API server', () => {
  test('an API server that has not started yet is retried with growing delays, and is logged once', async () => {
    feed();
    await eventually(() => clock.waits.length >= 8);
    expect(clock.waits.slice(0, 8)).toEqual([500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
    expect(reach.check()).toEqual({ name: 'kubernetes', ready: false, says: 'pods are not watched: ECONNREFUSED' });
    server.set(pod('web'));
    await server.start();
    await watched();
    expect(calls).toEqual(['all web']);
    expect(log).toEqual(['watch of pod annotations failed; retrying ECONNREFUSED', 'watch of pod annotations started']);
  });

  test('an API server that stops during a watch is logged once, and again when it is back', async () => {
    await server.start();
    server.set(pod('web'));
    feed();
    await watched();
    await server.stop();
    const says = (): string => reach.check().says;
    // The watch is disconnected first, then connections are refused.
    await eventually(() => says() === 'pods are not watched: ECONNREFUSED', says);
    server.set(pod('meanwhile'));
    await server.start();
    await receives('present meanwhile');
    await watched();
    expect(log).toEqual([
      'watch of pod annotations started',
      expect.stringMatching(/^watch of pod annotations failed; retrying E[A-Z]+$/),
      'watch of pod annotations started',
    ]);
  });

  test.each([401, 403, 500])(
    'an API server that answers %i is logged once, is reported in the readiness, and is watched again later',
    async (status) => {
      await server.start();
      server.set(pod('web'));
      server.refuse('list', status);
      feed();
      await server.until(() => server.of('list').length >= 4);
      expect(reach.check().says).toBe(`pods are not watched: HTTP ${status}: refused with ${status}`);
      server.accept('list');
      await watched();
      expect(log).toEqual([
        `watch of pod annotations failed; retrying HTTP ${status}: refused with ${status}`,
        'watch of pod annotations started',
      ]);
      expect(reach.check().ready).toBe(true);
    },
  );

  test('a list of pods is retried after the time in retry-after', async () => {
    await server.start();
    server.refuse('list', 429, 1, { 'retry-after': '7' });
    feed();
    await watched();
    expect(clock.waits).toEqual([7000]);
  });

  test('pods are listed in pages from etcd if the API server has no cached list of the last version', async () => {
    await server.start();
    for (let index = 0; index < 501; index += 1) server.set(pod(`web-${index}`));
    server.refuse('list', 410, 1);
    feed();
    await watched();
    expect(pods.size).toBe(501);
    expect(server.of('list').map(({ query: { resourceVersion, limit } }) => [resourceVersion, limit])).toEqual([
      ['0', undefined],
      [undefined, '500'],
      [undefined, '500'],
    ]);
    expect(log).toEqual(['watch of pod annotations started']);
  });

  test('pods are listed from the start if the next page is too old', async () => {
    await server.start();
    for (let index = 0; index < 501; index += 1) server.set(pod(`web-${index}`));
    server.refuse('list', 410, 2);
    feed();
    await watched();
    expect(pods.size).toBe(501);
    expect(server.of('list').map(({ query }) => query['continue'] !== undefined)).toEqual([false, false, false, true]);
  });

  test('pods are listed from etcd if the API server, after a restored backup, does not have the last version', async () => {
    await server.start();
    server.set(pod('web'));
    feed();
    await watched();
    clock.pass(300_000);
    server.goBack(50);
    server.refuse('watch', 410, 1);
    await server.until(() => server.of('list').length === 3);
    await watched();
    expect(server.of('list').map(({ query }) => query['resourceVersion'])).toEqual(['0', '101', undefined]);
    expect(log).toEqual(['watch of pod annotations started']);
  });

  test('an open watch of pods does not block a stop', async () => {
    await server.start();
    feed();
    await watched();
    stop.abort();
    await fed;
    await server.until(() => server.watching === 0);
    expect(log).toEqual(['watch of pod annotations started']);
  });
});
