import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Code, Reason, ShimError } from '../../../src/core/errors/index.ts';
import { followResizes } from '../../../src/kubernetes/annotations/follow.ts';
import type { PodEvent } from '../../../src/kubernetes/annotations/events.ts';
import type { ApiPod } from '../../../src/kubernetes/annotations/pod.ts';
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
/** The pods that run here, with the annotations that they were made with. */
let running: Map<string, { identity: PodIdentity; annotations: Record<string, string> }>;
let policies: Map<string, VolumePolicy>;
/** Of which volumes it was said that an annotation says their size, or no longer does. */
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

/** Another process: of this one nothing is left but the journal. */
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

const seen = (volumes: Record<string, string>, more: Partial<ApiPod> = {}): void =>
  requests.present({ uid: web.uid, namespace: 'default', name: 'web', isEnding: false, volumes, ...more });
const told = (): string[] => events.map(({ reason, note }) => `${reason}: ${note}`);
const wanted = ({ desired }: Awaited<ReturnType<FakeCore['next']>>): Record<string, VolumePolicy> =>
  Object.fromEntries(desired.volumes);
const size = (mebibytes: number): VolumePolicy => ({ kind: 'absolute', size: bytes(mebibytes * MiB) });
const hasTold = (count: number): Promise<void> =>
  eventually(
    () => events.length >= count,
    () => told().join('\n'),
  );
/** Lets all that is ready to happen do so. */
async function quiet(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

describe('a changed annotation', () => {
  test('is a request for that volume, told of on the pod, and not made again', async () => {
    seen({ cache: '64Mi' });
    const call = await core.next();
    expect(wanted(call)).toEqual({ cache: size(64) });
    expect([...call.desired.containers, ...Object.keys(call.desired.pod)]).toEqual([]);
    call.succeed();
    await hasTold(1);
    seen({ cache: '64Mi' });
    requests.replace([
      { uid: web.uid, namespace: 'default', name: 'web', isEnding: false, volumes: { cache: '64Mi' } },
    ]);
    await quiet();
    expect(core.waiting).toBe(0);
    expect(told()).toEqual(['VolumeResized: volume cache has 4Ki, as requested (64Mi)']);
    expect(events[0]?.pod).toEqual(web);
  });

  test('is not asked for again after a restart, but a newer one is', async () => {
    seen({ cache: '64Mi' });
    (await core.next()).succeed();
    await hasTold(1);
    // Something else has set it since: what Kubernetes says is older.
    policies.set('cache', size(512));
    await restart();
    seen({ cache: '64Mi' });
    await quiet();
    expect(core.waiting).toBe(0);
    seen({ cache: '32Mi' });
    expect(wanted(await core.next())).toEqual({ cache: size(32) });
  });

  test('that the pod was made with is no request', async () => {
    running.set(web.uid, { identity: web, annotations: { [`${KEY}cache`]: '50%', other: 'x' } });
    seen({ cache: '50%' });
    await quiet();
    expect(core.waiting).toBe(0);
    expect(store.records.size).toBe(0);
  });

  test('that has gone keeps the size; put back, it is asked for again', async () => {
    seen({ cache: '64Mi' });
    (await core.next()).succeed();
    await hasTold(1);
    expect(annotated).toEqual([['cache', true]]);
    seen({});
    await quiet();
    expect(core.waiting).toBe(0);
    expect(events).toHaveLength(1);
    expect(annotated).toEqual([
      ['cache', true],
      ['cache', false],
    ]);
    seen({ cache: '64Mi' });
    expect(wanted(await core.next())).toEqual({ cache: size(64) });
  });

  test('of a pod that does not run here yet is looked at when it does', async () => {
    running.clear();
    seen({ cache: '64Mi' });
    await quiet();
    expect(core.waiting).toBe(0);
    running.set(web.uid, { identity: web, annotations: {} });
    requests.look(web.uid);
    expect(wanted(await core.next())).toEqual({ cache: size(64) });
  });

  test('of a pod that is being deleted, or that has been, begins nothing', async () => {
    seen({ cache: '64Mi' }, { isEnding: true });
    await quiet();
    requests.gone(web.uid);
    requests.look(web.uid);
    await quiet();
    expect(core.waiting).toBe(0);
  });

  test('while another is under way waits for its end', async () => {
    seen({ cache: '64Mi' });
    const first = await core.next();
    seen({ cache: '32Mi' });
    seen({ cache: '16Mi' });
    await quiet();
    expect(core.waiting).toBe(0);
    first.succeed();
    const second = await core.next();
    expect(wanted(second)).toEqual({ cache: size(16) });
    second.succeed();
    await hasTold(2);
  });

  test('past the memory limit of the pod is carried out with a warning', async () => {
    seen({ cache: '256Mi' });
    const larger: ResizeOutcome = {
      ...outcome,
      after: { ...outcome.after, volumes: [{ name: 'cache', size: bytes(256 * MiB) }] },
    };
    (await core.next()).succeed(larger);
    await hasTold(2);
    expect(told()).toEqual([
      'VolumeResized: volume cache: 4Ki -> 256Mi, as requested (256Mi)',
      'VolumeSizeExceedsMemoryLimit: volume cache has 256Mi, more than the memory limit of the pod, 128Mi: a process may be killed before the volume is full',
    ]);
  });
});

describe('what does not fit yet', () => {
  beforeEach(async () => {
    seen({ cache: '64Mi' });
    (await core.next()).fail(inUse);
    await hasTold(1);
  });

  test('is told once with the figures, however often it is tried, and once more when it is done', async () => {
    for (let retry = 0; retry < 5; retry += 1) {
      clock.pass(60_000);
      (await core.next()).fail(inUse);
      await quiet();
    }
    clock.pass(60_000);
    (await core.next()).succeed();
    await hasTold(2);
    expect(told()).toEqual([
      'VolumeResizeDeferred: volume cache is not resized yet (requested: 64Mi): volume cache stores 200: it cannot shrink to 128; the shim retries until it fits',
      'VolumeResized: volume cache has 4Ki, as requested (64Mi)',
    ]);
  });

  test('waits after a restart, and is told of when it is done', async () => {
    await restart();
    seen({ cache: '64Mi' });
    await quiet();
    expect(core.waiting).toBe(0);
    clock.pass(60_000);
    (await core.next()).succeed();
    await hasTold(2);
    expect(told().at(-1)).toBe('VolumeResized: volume cache has 4Ki, as requested (64Mi)');
  });

  test('is superseded by a newer value, and no more is heard of it', async () => {
    seen({ cache: '96Mi' });
    (await core.next()).succeed();
    await hasTold(2);
    expect(told().at(-1)).toBe('VolumeResized: volume cache has 4Ki, as requested (96Mi)');
    clock.pass(60_000);
    await quiet();
    expect(core.waiting).toBe(0);
    expect(events).toHaveLength(2);
  });

  test('goes along with what is asked for another volume, so that neither is lost', async () => {
    seen({ cache: '64Mi', logs: '8Mi' });
    const both = await core.next();
    expect(wanted(both)).toEqual({ cache: size(64), logs: size(8) });
    both.fail(inUse);
    await hasTold(2);
    expect(events[1]?.note).toMatch(/^volume logs is not resized yet \(requested: 8Mi\)/);
    clock.pass(60_000);
    const again = await core.next();
    expect(wanted(again)).toEqual({ cache: size(64), logs: size(8) });
    again.succeed();
    await hasTold(4);
    expect(events.slice(2).map(({ reason, note }) => `${reason} ${/volume (\w+)/.exec(note)?.[1]}`)).toEqual([
      'VolumeResized cache',
      'VolumeResized logs',
    ]);
  });

  test('still waits when what is asked for another volume is refused', async () => {
    seen({ cache: '64Mi', none: '8Mi' });
    (await core.next()).fail(unknownVolume);
    await hasTold(2);
    expect(told()[1]).toBe(
      'VolumeResizeInfeasible: volume none is not resized (requested: 8Mi): UNKNOWN_VOLUME: pod web has no volume none',
    );
    clock.pass(60_000);
    const again = await core.next();
    expect(wanted(again)).toEqual({ cache: size(64) });
    again.succeed();
    await hasTold(3);
    expect(events).toHaveLength(3);
  });

  test('is no longer waited for when its annotation is taken away', async () => {
    seen({});
    await hasTold(2);
    expect(told()[1]).toBe(
      'VolumeResizeCanceled: volume cache resize was canceled (requested: 64Mi): its annotation was removed',
    );
    clock.pass(120_000);
    await quiet();
    expect(core.waiting).toBe(0);
    expect(events).toHaveLength(2);
    await restart();
    seen({});
    clock.pass(120_000);
    await quiet();
    expect(core.waiting).toBe(0);
  });

  test('of two, the other still is', async () => {
    seen({ cache: '64Mi', logs: '8Mi' });
    (await core.next()).fail(inUse);
    await hasTold(2);
    seen({ logs: '8Mi' });
    const rest = await core.next();
    expect(wanted(rest)).toEqual({ logs: size(8) });
    rest.succeed();
    await hasTold(4);
    expect(
      events
        .slice(2)
        .map(({ reason, note }) => `${reason} ${/volume (\w+)/.exec(note)?.[1]}`)
        .sort(),
    ).toEqual(['VolumeResizeCanceled cache', 'VolumeResized logs']);
  });

  test('is told of when another caller has taken its place', async () => {
    const other = {
      pod: { limits: { cpu: '1', memory: '' }, requests: { cpu: '', memory: '' } },
      containers: {},
      volumes: { cache: '96Mi' },
    };
    const answer = resizes.resize(web, other, { defer: false, timeoutMs: 1000, deadline: clock.now() + 1000 });
    (await core.next()).succeed();
    const { id } = await answer;
    await hasTold(2);
    expect(told()[1]).toBe(
      `VolumeResizeCanceled: volume cache resize was canceled (requested: 64Mi): superseded by resize ${id}`,
    );
  });

  test('goes with its pod, without a word', async () => {
    running.clear();
    resizes.podRemoved(web.sandboxId);
    requests.gone(web.uid);
    clock.pass(120_000);
    await quiet();
    expect(core.waiting).toBe(0);
    expect(events).toHaveLength(1);
    expect(store.records.size).toBe(0);
  });
});

describe('what is refused', () => {
  test.each([
    ['huge', 'INVALID_ANNOTATION'],
    ['x'.repeat(256), 'INVALID_ANNOTATION'],
    ['0', 'INVALID_ANNOTATION'],
  ])('for its text (%s): told once, not tried again, not after a restart either', async (text, reason) => {
    seen({ cache: text });
    await hasTold(1);
    expect(events[0]?.reason).toBe('VolumeResizeInfeasible');
    expect(events[0]?.note).toContain(reason);
    seen({ cache: text });
    await restart();
    seen({ cache: text });
    await quiet();
    expect(events).toHaveLength(1);
    expect(core.waiting).toBe(0);
  });

  test('by the node: told, and not tried again', async () => {
    seen({ none: '8Mi' });
    (await core.next()).fail(unknownVolume);
    await hasTold(1);
    clock.pass(120_000);
    seen({ none: '8Mi' });
    await quiet();
    expect(core.waiting).toBe(0);
    expect(events).toHaveLength(1);
  });

  test.each([noBackend, noJournal])(
    'for a time ($reason) is asked for until it goes, and told of once',
    async (passing) => {
      seen({ cache: '64Mi' });
      for (const delay of [750, 1500, 3000]) {
        (await core.next()).fail(passing);
        await eventually(() => clock.next !== undefined);
        expect(clock.next).toBe(delay);
        clock.pass(delay);
      }
      (await core.next()).succeed();
      await hasTold(2);
      expect(events.map(({ reason }) => reason)).toEqual(['VolumeResizeDeferred', 'VolumeResized']);
      expect(events[0]?.note).toContain(passing.message);
    },
  );
});
