import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Code, Reason, ShimError } from '../../../src/core/errors/index.ts';
import { followResizes } from '../../../src/kubernetes/annotations/follow.ts';
import type { PodEvent } from '../../../src/kubernetes/annotations/events.ts';
import type { ApiPod } from '../../../src/kubernetes/pods/pod.ts';
import { AnnotationRequests } from '../../../src/kubernetes/annotations/requests.ts';
import { noLog } from '../../../src/observe/index.ts';
import { bytes } from '../../../src/core/quantities/index.ts';
import { FakeClock, FakeCore, FakeStore, createResizes, outcome, web } from '../../support/resize/fake-resizes.ts';
import { eventually } from '../../support/fake-clock.ts';
import type { PodIdentity } from '../../../src/sandbox/pod-identity.ts';
import type { ResizeOutcome } from '../../../src/resize/model/resize-request.ts';
import type { Resizes } from '../../../src/resize/queue/resizes.ts';
import type { VolumePolicy } from '../../../src/tmpfs/sizes.ts';

const MiB = 1024 * 1024;
const KEY = 'volume.cri-resize-shim.io/';
let core: FakeCore;
let clock: FakeClock;
let store: FakeStore;
let resizes: Resizes;
let requests: AnnotationRequests;
let events: PodEvent[];
let stop: AbortController;
/** The pods on this node, with the annotations that they were created with. */
let running: Map<string, { identity: PodIdentity; annotations: Record<string, string> }>;
let policies: Map<string, VolumePolicy>;
/** The calls that set whether a volume has an annotation. */
let annotated: (readonly [volume: string, isThere: boolean])[];

const inUse = new ShimError(
  Code.FAILED_PRECONDITION,
  Reason.VOLUME_IN_USE,
  'volume cache stores 200: it cannot shrink to 128',
);
const unknownVolume = new ShimError(Code.INVALID_ARGUMENT, Reason.UNKNOWN_VOLUME, 'pod web has no volume none');
const noBackend = new ShimError(Code.UNAVAILABLE, Reason.BACKEND_UNAVAILABLE, 'no containerd');
const noJournal = new ShimError(Code.FAILED_PRECONDITION, Reason.JOURNAL_UNAVAILABLE, 'disk full');

function begin(): void {
  stop = new AbortController();
  resizes = createResizes({ core, clock, store });
  const pods = {
    find: (uid: string) => Promise.resolve(running.get(uid)),
    policy: (_: string, volume: string) => policies.get(volume) ?? ({ kind: 'fixed' } as const),
    annotated: (_: string, volume: string, isThere: boolean) => Promise.resolve(void annotated.push([volume, isThere])),
  };
  const parts = { resizes, pods, clock, random: () => 0.5, log: noLog };
  requests = new AnnotationRequests({ ...parts, post: (event) => events.push(event) });
  void followResizes(
    { resizes, clock, random: () => 0.5, log: noLog },
    (resize) => requests.reached(resize),
    stop.signal,
  );
}

/** Starts another process with the journal of this one. */
async function restart(): Promise<void> {
  stop.abort();
  requests.close();
  await resizes.close();
  begin();
  await resizes.restore(() => Promise.resolve(true));
}

beforeEach(() => {
  core = new FakeCore();
  clock = new FakeClock();
  store = new FakeStore();
  events = [];
  running = new Map([[web.uid, { identity: web, annotations: {} }]]);
  annotated = [];
  policies = new Map();
  begin();
});
afterEach(() => stop.abort());

const observe = (volumes: Record<string, string>, more: Partial<ApiPod> = {}): void =>
  requests.present({
    uid: web.uid,
    namespace: 'default',
    name: 'web',
    isMirror: false,
    isEnding: false,
    spec: undefined,
    volumes,
    ...more,
  });
const reported = (): string[] => events.map(({ reason, note }) => `${reason}: ${note}`);
const volumesOf = ({ desired }: Awaited<ReturnType<FakeCore['next']>>): Record<string, VolumePolicy> =>
  Object.fromEntries(desired.volumes);
const size = (mebibytes: number): VolumePolicy => ({ kind: 'absolute', size: bytes(mebibytes * MiB) });
const eventCount = (count: number): Promise<void> =>
  eventually(
    () => events.length >= count,
    () => reported().join('\n'),
  );
/** Runs all pending tasks. */
async function runPending(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

describe('H2: a pod of another namespace that claims the uid of this one', () => {
  const other = { namespace: 'tenant', name: 'attacker' };

  test('requests nothing, and does not end a request when it is deleted', async () => {
    observe({ cache: '1Mi' }, other);
    await runPending();
    expect(core.waiting).toBe(0);
    observe({ cache: '64Mi' });
    const call = await core.next();
    expect(volumesOf(call)).toEqual({ cache: size(64) });
    requests.gone({ uid: web.uid, ...other });
    call.succeed();
    await eventCount(1);
    expect(events.map(({ pod }) => pod)).toEqual([web]);
    observe({ cache: '64Mi' });
    observe({ cache: '128Mi' });
    expect(volumesOf(await core.next())).toEqual({ cache: size(128) });
  });

  test('requests nothing under this name in its own namespace, or under another name in this namespace', async () => {
    observe({ cache: '1Mi' }, { namespace: 'tenant' });
    observe({ cache: '1Mi' }, { name: 'attacker' });
    await runPending();
    expect(core.waiting).toBe(0);
  });
});

describe('H2: a mirror pod', () => {
  const SOURCE = 'kubernetes.io/config.source';

  test.each(['file', 'http'])('speaks for a static pod of this node, from kubelet’s source %s', async (source) => {
    running.set(web.uid, { identity: web, annotations: { [SOURCE]: source } });
    observe({ cache: '64Mi' }, { isMirror: true });
    expect(volumesOf(await core.next())).toEqual({ cache: size(64) });
  });

  test.each([
    ['comes from the API server', { [SOURCE]: 'api' }],
    ['has no source', {}],
  ])('requests nothing for a pod that %s', async (_, annotations) => {
    running.set(web.uid, { identity: web, annotations });
    observe({ cache: '1Mi' }, { isMirror: true });
    await runPending();
    expect(core.waiting).toBe(0);
  });
});

describe('a changed annotation', () => {
  test('is requested once for its volume, and is reported as an event of the pod', async () => {
    observe({ cache: '64Mi' });
    const call = await core.next();
    expect(volumesOf(call)).toEqual({ cache: size(64) });
    expect([...call.desired.containers, ...Object.keys(call.desired.pod)]).toEqual([]);
    call.succeed();
    await eventCount(1);
    observe({ cache: '64Mi' });
    requests.replace([{ ...web, isMirror: false, isEnding: false, spec: undefined, volumes: { cache: '64Mi' } }]);
    await runPending();
    expect(core.waiting).toBe(0);
    expect(reported()).toEqual(['VolumeResized: volume cache has 4Ki, as requested (64Mi)']);
    expect(events[0]?.pod).toEqual(web);
  });

  test('is not requested again after a restart, but a newer one is', async () => {
    observe({ cache: '64Mi' });
    (await core.next()).succeed();
    await eventCount(1);
    // Another caller has set the size since, so the annotation is older.
    policies.set('cache', size(512));
    await restart();
    observe({ cache: '64Mi' });
    await runPending();
    expect(core.waiting).toBe(0);
    observe({ cache: '32Mi' });
    expect(volumesOf(await core.next())).toEqual({ cache: size(32) });
  });

  test('that the pod was created with is not requested', async () => {
    running.set(web.uid, { identity: web, annotations: { [`${KEY}cache`]: '50%', other: 'x' } });
    observe({ cache: '50%' });
    await runPending();
    expect(core.waiting).toBe(0);
    expect(store.records.size).toBe(0);
  });

  test('that is removed leaves the size, and is requested again when it is added again', async () => {
    observe({ cache: '64Mi' });
    (await core.next()).succeed();
    await eventCount(1);
    expect(annotated).toEqual([['cache', true]]);
    observe({});
    await runPending();
    expect(core.waiting).toBe(0);
    expect(events).toHaveLength(1);
    expect(annotated).toEqual([
      ['cache', true],
      ['cache', false],
    ]);
    observe({ cache: '64Mi' });
    expect(volumesOf(await core.next())).toEqual({ cache: size(64) });
  });

  test('of a pod that is not on the node yet is requested when the pod starts', async () => {
    running.clear();
    observe({ cache: '64Mi' });
    await runPending();
    expect(core.waiting).toBe(0);
    running.set(web.uid, { identity: web, annotations: {} });
    requests.look(web);
    expect(volumesOf(await core.next())).toEqual({ cache: size(64) });
  });

  test('of a pod that is terminating or deleted is not requested', async () => {
    observe({ cache: '64Mi' }, { isEnding: true });
    await runPending();
    requests.gone(web);
    requests.look(web);
    await runPending();
    expect(core.waiting).toBe(0);
  });

  test('is requested after the resize in progress, with the newest value', async () => {
    observe({ cache: '64Mi' });
    const first = await core.next();
    observe({ cache: '32Mi' });
    observe({ cache: '16Mi' });
    await runPending();
    expect(core.waiting).toBe(0);
    first.succeed();
    const second = await core.next();
    expect(volumesOf(second)).toEqual({ cache: size(16) });
    second.succeed();
    await eventCount(2);
  });

  test('above the memory limit of the pod is applied with a warning', async () => {
    observe({ cache: '256Mi' });
    const larger: ResizeOutcome = {
      ...outcome,
      after: { ...outcome.after, volumes: [{ name: 'cache', size: bytes(256 * MiB) }] },
    };
    (await core.next()).succeed(larger);
    await eventCount(2);
    expect(reported()).toEqual([
      'VolumeResized: volume cache: 4Ki -> 256Mi, as requested (256Mi)',
      'VolumeSizeExceedsMemoryLimit: volume cache has 256Mi, more than the memory limit of the pod, 128Mi: a process may be killed before the volume is full',
    ]);
  });
});

describe('an annotation that does not fit yet', () => {
  beforeEach(async () => {
    observe({ cache: '64Mi' });
    (await core.next()).fail(inUse);
    await eventCount(1);
  });

  test('is reported once with the figures for all its tries, and once when it is applied', async () => {
    for (let retry = 0; retry < 5; retry += 1) {
      clock.pass(60_000);
      (await core.next()).fail(inUse);
      await runPending();
    }
    clock.pass(60_000);
    (await core.next()).succeed();
    await eventCount(2);
    expect(reported()).toEqual([
      'VolumeResizeDeferred: volume cache is not resized yet (requested: 64Mi): volume cache stores 200: it cannot shrink to 128; the shim retries until it fits',
      'VolumeResized: volume cache has 4Ki, as requested (64Mi)',
    ]);
  });

  test('stays deferred after a restart, and is reported when it is applied', async () => {
    await restart();
    observe({ cache: '64Mi' });
    await runPending();
    expect(core.waiting).toBe(0);
    clock.pass(60_000);
    (await core.next()).succeed();
    await eventCount(2);
    expect(reported().at(-1)).toBe('VolumeResized: volume cache has 4Ki, as requested (64Mi)');
  });

  test('is superseded by a newer value, and not reported any more', async () => {
    observe({ cache: '96Mi' });
    (await core.next()).succeed();
    await eventCount(2);
    expect(reported().at(-1)).toBe('VolumeResized: volume cache has 4Ki, as requested (96Mi)');
    clock.pass(60_000);
    await runPending();
    expect(core.waiting).toBe(0);
    expect(events).toHaveLength(2);
  });

  test('is requested together with an annotation of another volume, so that neither is lost', async () => {
    observe({ cache: '64Mi', logs: '8Mi' });
    const both = await core.next();
    expect(volumesOf(both)).toEqual({ cache: size(64), logs: size(8) });
    both.fail(inUse);
    await eventCount(2);
    expect(events[1]?.note).toMatch(/^volume logs is not resized yet \(requested: 8Mi\)/);
    clock.pass(60_000);
    const again = await core.next();
    expect(volumesOf(again)).toEqual({ cache: size(64), logs: size(8) });
    again.succeed();
    await eventCount(4);
    expect(events.slice(2).map(({ reason, note }) => `${reason} ${/volume (\w+)/.exec(note)?.[1]}`)).toEqual([
      'VolumeResized cache',
      'VolumeResized logs',
    ]);
  });

  test('stays deferred when an annotation of another volume is rejected', async () => {
    observe({ cache: '64Mi', none: '8Mi' });
    (await core.next()).fail(unknownVolume);
    await eventCount(2);
    expect(reported()[1]).toBe(
      'VolumeResizeInfeasible: volume none is not resized (requested: 8Mi): UNKNOWN_VOLUME: pod web has no volume none',
    );
    clock.pass(60_000);
    const again = await core.next();
    expect(volumesOf(again)).toEqual({ cache: size(64) });
    again.succeed();
    await eventCount(3);
    expect(events).toHaveLength(3);
  });

  test('is canceled when it is removed', async () => {
    observe({});
    await eventCount(2);
    expect(reported()[1]).toBe(
      'VolumeResizeCanceled: volume cache resize was canceled (requested: 64Mi): its annotation was removed',
    );
    clock.pass(120_000);
    await runPending();
    expect(core.waiting).toBe(0);
    expect(events).toHaveLength(2);
    await restart();
    observe({});
    clock.pass(120_000);
    await runPending();
    expect(core.waiting).toBe(0);
  });

  test('is canceled without the deferred annotation of another volume', async () => {
    observe({ cache: '64Mi', logs: '8Mi' });
    (await core.next()).fail(inUse);
    await eventCount(2);
    observe({ logs: '8Mi' });
    const rest = await core.next();
    expect(volumesOf(rest)).toEqual({ logs: size(8) });
    rest.succeed();
    await eventCount(4);
    expect(
      events
        .slice(2)
        .map(({ reason, note }) => `${reason} ${/volume (\w+)/.exec(note)?.[1]}`)
        .sort(),
    ).toEqual(['VolumeResizeCanceled cache', 'VolumeResized logs']);
  });

  test('is reported as canceled when another caller supersedes it', async () => {
    const other = {
      pod: { limits: { cpu: '1', memory: '' }, requests: { cpu: '', memory: '' } },
      containers: {},
      volumes: { cache: '96Mi' },
    };
    const answer = resizes.resize(web, other, { defer: false, timeoutMs: 1000, deadline: clock.now() + 1000 });
    (await core.next()).succeed();
    const { id } = await answer;
    await eventCount(2);
    expect(reported()[1]).toBe(
      `VolumeResizeCanceled: volume cache resize was canceled (requested: 64Mi): superseded by resize ${id}`,
    );
  });

  test('ends with its pod, without an event', async () => {
    running.clear();
    resizes.podRemoved(web.sandboxId);
    requests.gone(web);
    clock.pass(120_000);
    await runPending();
    expect(core.waiting).toBe(0);
    expect(events).toHaveLength(1);
    expect(store.records.size).toBe(0);
  });
});

describe('an annotation that is rejected', () => {
  test.each([
    ['huge', 'INVALID_ANNOTATION'],
    ['x'.repeat(256), 'INVALID_ANNOTATION'],
    ['0', 'INVALID_ANNOTATION'],
  ])('for its text (%s) is reported once and not retried, not even after a restart', async (text, reason) => {
    observe({ cache: text });
    await eventCount(1);
    expect(events[0]?.reason).toBe('VolumeResizeInfeasible');
    expect(events[0]?.note).toContain(reason);
    observe({ cache: text });
    await restart();
    observe({ cache: text });
    await runPending();
    expect(events).toHaveLength(1);
    expect(core.waiting).toBe(0);
  });

  test('by the node is reported and not retried', async () => {
    observe({ none: '8Mi' });
    (await core.next()).fail(unknownVolume);
    await eventCount(1);
    clock.pass(120_000);
    observe({ none: '8Mi' });
    await runPending();
    expect(core.waiting).toBe(0);
    expect(events).toHaveLength(1);
  });

  test.each([noBackend, noJournal])(
    'for a temporary reason ($reason) is retried until it is applied, and reported once',
    async (temporary) => {
      observe({ cache: '64Mi' });
      for (const delay of [750, 1500, 3000]) {
        (await core.next()).fail(temporary);
        await eventually(() => clock.next !== undefined);
        expect(clock.next).toBe(delay);
        clock.pass(delay);
      }
      (await core.next()).succeed();
      await eventCount(2);
      expect(events.map(({ reason }) => reason)).toEqual(['VolumeResizeDeferred', 'VolumeResized']);
      expect(events[0]?.note).toContain(temporary.message);
    },
  );
});
