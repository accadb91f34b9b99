import { beforeEach, describe, expect, test } from 'vitest';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { Code } from '../../../src/core/grpc.ts';
import { eventually } from '../../support/fake-clock.ts';
import { AnnotatedPod, runPending, size, unknownVolume, volumesOf } from '../../support/kubernetes/annotated-pod.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';
import { web } from '../../support/resize/fake-resizes.ts';
import { noBackend } from '../../support/resize/resize-queue.ts';

const KEY = 'volume.cri-resize-shim.io/';
const noJournal = new ShimError(Code.FAILED_PRECONDITION, Reason.JOURNAL_UNAVAILABLE, 'disk full');

const pod = new AnnotatedPod();

describe('H2: a pod of another namespace that claims the uid of this one', () => {
  const other = { namespace: 'tenant', name: 'attacker' };

  test('a pod of another namespace with a claimed uid requests nothing, and its deletion does not end a request', async () => {
    pod.observe({ cache: '1Mi' }, other);
    await runPending();
    expect(pod.core.waiting).toBe(0);
    pod.observe({ cache: '64Mi' });
    const call = await pod.core.next();
    expect(volumesOf(call)).toEqual({ cache: size(64) });
    pod.requests.gone({ uid: web.uid, ...other });
    call.succeed();
    await pod.eventCount(1);
    expect(pod.events.map(({ pod }) => pod)).toEqual([web]);
    pod.observe({ cache: '64Mi' });
    pod.observe({ cache: '128Mi' });
    expect(volumesOf(await pod.core.next())).toEqual({ cache: size(128) });
  });

  test('a pod with a claimed uid requests nothing if only its name or only its namespace matches', async () => {
    pod.observe({ cache: '1Mi' }, { namespace: 'tenant' });
    pod.observe({ cache: '1Mi' }, { name: 'attacker' });
    await runPending();
    expect(pod.core.waiting).toBe(0);
  });
});

describe('H2: a mirror pod', () => {
  const SOURCE = 'kubernetes.io/config.source';

  test.each(['file', 'http'])(
    'a mirror pod is accepted for a static pod of this node, from kubelet’s source %s',
    async (source) => {
      pod.running.set(web.uid, { identity: web, annotations: { [SOURCE]: source } });
      pod.observe({ cache: '64Mi' }, { isMirror: true });
      expect(volumesOf(await pod.core.next())).toEqual({ cache: size(64) });
    },
  );

  test.each([
    ['comes from the API server', { [SOURCE]: 'api' }],
    ['has no source', {}],
  ])('a mirror pod requests nothing for a pod that %s', async (_, annotations) => {
    pod.running.set(web.uid, { identity: web, annotations });
    pod.observe({ cache: '1Mi' }, { isMirror: true });
    await runPending();
    expect(pod.core.waiting).toBe(0);
  });
});

describe('a changed annotation', () => {
  test('a changed annotation is requested once for its volume, and is reported as an event of the pod', async () => {
    pod.observe({ cache: '64Mi' });
    const call = await pod.core.next();
    expect(volumesOf(call)).toEqual({ cache: size(64) });
    expect([...call.desired.containers, ...Object.keys(call.desired.pod)]).toEqual([]);
    call.succeed();
    await pod.eventCount(1);
    pod.observe({ cache: '64Mi' });
    pod.requests.replace([{ ...web, isMirror: false, isEnding: false, spec: undefined, volumes: { cache: '64Mi' } }]);
    await runPending();
    expect(pod.core.waiting).toBe(0);
    expect(pod.reported()).toEqual(['VolumeResized: volume cache has 4Ki, as requested (64Mi)']);
    expect(pod.events[0]?.pod).toEqual(web);
  });

  test('a requested annotation is not requested again after a restart, but a newer value is', async () => {
    pod.observe({ cache: '64Mi' });
    (await pod.core.next()).succeed();
    await pod.eventCount(1);
    // Another caller has set the size since then, so the annotation is older.
    pod.policies.set('cache', size(512));
    await pod.restart();
    pod.observe({ cache: '64Mi' });
    await runPending();
    expect(pod.core.waiting).toBe(0);
    pod.observe({ cache: '32Mi' });
    expect(volumesOf(await pod.core.next())).toEqual({ cache: size(32) });
  });

  test('an annotation that the pod was created with is not requested', async () => {
    pod.running.set(web.uid, { identity: web, annotations: { [`${KEY}cache`]: '50%', other: 'x' } });
    pod.observe({ cache: '50%' });
    await runPending();
    expect(pod.core.waiting).toBe(0);
    expect(pod.store.records.size).toBe(0);
  });

  test('removing an annotation does not change the size, and adding it again requests it again', async () => {
    pod.observe({ cache: '64Mi' });
    (await pod.core.next()).succeed();
    await pod.eventCount(1);
    expect(pod.annotated).toEqual([['cache', true]]);
    pod.observe({});
    await runPending();
    expect(pod.core.waiting).toBe(0);
    expect(pod.events).toHaveLength(1);
    expect(pod.annotated).toEqual([
      ['cache', true],
      ['cache', false],
    ]);
    pod.observe({ cache: '64Mi' });
    expect(volumesOf(await pod.core.next())).toEqual({ cache: size(64) });
  });

  test('an annotation of a pod that is not on the node yet is requested when the pod starts', async () => {
    pod.running.clear();
    pod.observe({ cache: '64Mi' });
    await runPending();
    expect(pod.core.waiting).toBe(0);
    pod.running.set(web.uid, { identity: web, annotations: {} });
    pod.requests.look(web);
    expect(volumesOf(await pod.core.next())).toEqual({ cache: size(64) });
  });

  test('an annotation of a terminating or deleted pod is not requested', async () => {
    pod.observe({ cache: '64Mi' }, { isEnding: true });
    await runPending();
    pod.requests.gone(web);
    pod.requests.look(web);
    await runPending();
    expect(pod.core.waiting).toBe(0);
  });

  test('a changed annotation is requested after the resize in progress, with the newest value', async () => {
    pod.observe({ cache: '64Mi' });
    const first = await pod.core.next();
    pod.observe({ cache: '32Mi' });
    pod.observe({ cache: '16Mi' });
    await runPending();
    expect(pod.core.waiting).toBe(0);
    first.succeed();
    const second = await pod.core.next();
    expect(volumesOf(second)).toEqual({ cache: size(16) });
    second.succeed();
    await pod.eventCount(2);
  });
});

describe('an annotation that is rejected', () => {
  test.each([
    ['huge', 'INVALID_ANNOTATION'],
    ['x'.repeat(256), 'INVALID_ANNOTATION'],
    ['0', 'INVALID_ANNOTATION'],
  ])(
    'an annotation with invalid text (%s) is reported once and not retried, even after a restart',
    async (text, reason) => {
      pod.observe({ cache: text });
      await pod.eventCount(1);
      expect(pod.events[0]?.reason).toBe('VolumeResizeInfeasible');
      expect(pod.events[0]?.note).toContain(reason);
      pod.observe({ cache: text });
      await pod.restart();
      pod.observe({ cache: text });
      await runPending();
      expect(pod.events).toHaveLength(1);
      expect(pod.core.waiting).toBe(0);
    },
  );

  test('an annotation that the node rejects is reported and not retried', async () => {
    pod.observe({ none: '8Mi' });
    (await pod.core.next()).fail(unknownVolume);
    await pod.eventCount(1);
    pod.clock.pass(120_000);
    pod.observe({ none: '8Mi' });
    await runPending();
    expect(pod.core.waiting).toBe(0);
    expect(pod.events).toHaveLength(1);
  });

  test.each([noBackend, noJournal])(
    'an annotation rejected for a temporary reason ($reason) is retried until it is applied, and reported as deferred once',
    async (temporary) => {
      pod.observe({ cache: '64Mi' });
      for (const delay of [750, 1500, 3000]) {
        (await pod.core.next()).fail(temporary);
        await eventually(() => pod.clock.next !== undefined);
        expect(pod.clock.next).toBe(delay);
        pod.clock.pass(delay);
      }
      (await pod.core.next()).succeed();
      await pod.eventCount(2);
      expect(pod.events.map(({ reason }) => reason)).toEqual(['VolumeResizeDeferred', 'VolumeResized']);
      expect(pod.events[0]?.note).toContain(temporary.message);
    },
  );
});

describe('an annotation that does not fit yet', () => {
  const inUse = new ShimError(
    Code.FAILED_PRECONDITION,
    Reason.VOLUME_IN_USE,
    'volume cache stores 200: it cannot shrink to 128',
  );

  const pod = new AnnotatedPod();

  beforeEach(async () => {
    pod.observe({ cache: '64Mi' });
    (await pod.core.next()).fail(inUse);
    await pod.eventCount(1);
  });

  test('a deferred annotation is reported once with the figures for all retries, and once when it is applied', async () => {
    for (let retry = 0; retry < 5; retry += 1) {
      pod.clock.pass(60_000);
      (await pod.core.next()).fail(inUse);
      await runPending();
    }
    pod.clock.pass(60_000);
    (await pod.core.next()).succeed();
    await pod.eventCount(2);
    expect(pod.reported()).toEqual([
      'VolumeResizeDeferred: volume cache is not resized yet (requested: 64Mi): volume cache stores 200: it cannot shrink to 128; the shim retries until it fits',
      'VolumeResized: volume cache has 4Ki, as requested (64Mi)',
    ]);
  });

  test('a deferred annotation stays deferred after a restart, and is reported when it is applied', async () => {
    await pod.restart();
    pod.observe({ cache: '64Mi' });
    await runPending();
    expect(pod.core.waiting).toBe(0);
    pod.clock.pass(60_000);
    (await pod.core.next()).succeed();
    await pod.eventCount(2);
    expect(pod.reported().at(-1)).toBe('VolumeResized: volume cache has 4Ki, as requested (64Mi)');
  });

  const replaced: [string, (() => Promise<void>) | undefined][] = [
    ['', undefined],
    [' before a restart of the shim', () => pod.restart()],
  ];
  describe.each(replaced)('a deferred annotation whose pod gets another sandbox%s', (_, then) => {
    beforeEach(async () => {
      pod.replaceSandbox();
      await then?.();
    });

    test('a deferred annotation is reported when it is applied in a new sandbox, and is not requested again', async () => {
      pod.observe({ cache: '64Mi' });
      await runPending();
      expect(pod.core.waiting).toBe(0);
      pod.clock.pass(60_000);
      (await pod.core.next()).succeed();
      await pod.eventCount(2);
      expect(pod.reported().at(-1)).toBe('VolumeResized: volume cache has 4Ki, as requested (64Mi)');
      expect(pod.resizes.annotationsOf(pod.running.get(web.uid)!.identity.sandboxId)).toEqual({ cache: '64Mi' });
    });

    test('a deferred annotation of a pod with a new sandbox ends when the annotation is removed', async () => {
      pod.observe({});
      await expect.poll(() => pod.resizes.unfinished, LONG_WAIT).toEqual([]);
      pod.clock.pass(60_000);
      await runPending();
      expect(pod.core.waiting).toBe(0);
    });
  });

  test('a deferred annotation is superseded by a newer value, and is not reported again', async () => {
    pod.observe({ cache: '96Mi' });
    (await pod.core.next()).succeed();
    await pod.eventCount(2);
    expect(pod.reported().at(-1)).toBe('VolumeResized: volume cache has 4Ki, as requested (96Mi)');
    pod.clock.pass(60_000);
    await runPending();
    expect(pod.core.waiting).toBe(0);
    expect(pod.events).toHaveLength(2);
  });

  test('a deferred annotation is requested together with an annotation of another volume, so that neither is lost', async () => {
    pod.observe({ cache: '64Mi', logs: '8Mi' });
    const both = await pod.core.next();
    expect(volumesOf(both)).toEqual({ cache: size(64), logs: size(8) });
    both.fail(inUse);
    await pod.eventCount(2);
    expect(pod.events[1]?.note).toMatch(/^volume logs is not resized yet \(requested: 8Mi\)/);
    pod.clock.pass(60_000);
    const again = await pod.core.next();
    expect(volumesOf(again)).toEqual({ cache: size(64), logs: size(8) });
    again.succeed();
    await pod.eventCount(4);
    expect(pod.events.slice(2).map(({ reason, note }) => `${reason} ${/volume (\w+)/.exec(note)?.[1]}`)).toEqual([
      'VolumeResized cache',
      'VolumeResized logs',
    ]);
  });

  test('a deferred annotation stays deferred when an annotation of another volume is rejected', async () => {
    pod.observe({ cache: '64Mi', none: '8Mi' });
    (await pod.core.next()).fail(unknownVolume);
    await pod.eventCount(2);
    expect(pod.reported()[1]).toBe(
      'VolumeResizeInfeasible: volume none is not resized (requested: 8Mi): UNKNOWN_VOLUME: pod web has no volume none',
    );
    pod.clock.pass(60_000);
    const again = await pod.core.next();
    expect(volumesOf(again)).toEqual({ cache: size(64) });
    again.succeed();
    await pod.eventCount(3);
    expect(pod.events).toHaveLength(3);
  });

  test('a deferred annotation is canceled when it is removed', async () => {
    pod.observe({});
    await pod.eventCount(2);
    expect(pod.reported()[1]).toBe(
      'VolumeResizeCanceled: volume cache resize was canceled (requested: 64Mi): its annotation was removed',
    );
    pod.clock.pass(120_000);
    await runPending();
    expect(pod.core.waiting).toBe(0);
    expect(pod.events).toHaveLength(2);
    await pod.restart();
    pod.observe({});
    pod.clock.pass(120_000);
    await runPending();
    expect(pod.core.waiting).toBe(0);
  });

  test('removing a deferred annotation does not cancel the deferred annotation of another volume', async () => {
    pod.observe({ cache: '64Mi', logs: '8Mi' });
    (await pod.core.next()).fail(inUse);
    await pod.eventCount(2);
    pod.observe({ logs: '8Mi' });
    const rest = await pod.core.next();
    expect(volumesOf(rest)).toEqual({ logs: size(8) });
    rest.succeed();
    await pod.eventCount(4);
    expect(
      pod.events
        .slice(2)
        .map(({ reason, note }) => `${reason} ${/volume (\w+)/.exec(note)?.[1]}`)
        .sort(),
    ).toEqual(['VolumeResizeCanceled cache', 'VolumeResized logs']);
  });

  test('a deferred annotation is reported as canceled when another caller supersedes it', async () => {
    const other = {
      pod: { limits: { cpu: '1', memory: '' }, requests: { cpu: '', memory: '' } },
      containers: {},
      volumes: { cache: '96Mi' },
    };
    const answer = pod.resizes.resize(web, other, { defer: false, timeoutMs: 1000, deadline: pod.clock.now() + 1000 });
    (await pod.core.next()).succeed();
    const { id } = await answer;
    await pod.eventCount(2);
    expect(pod.reported()[1]).toBe(
      `VolumeResizeCanceled: volume cache resize was canceled (requested: 64Mi): superseded by resize ${id}`,
    );
  });

  test('a deferred annotation ends with its pod, without an event', async () => {
    pod.running.clear();
    pod.resizes.podRemoved(web.sandboxId);
    pod.requests.gone(web);
    pod.clock.pass(120_000);
    await runPending();
    expect(pod.core.waiting).toBe(0);
    expect(pod.events).toHaveLength(1);
    expect(pod.store.records.size).toBe(0);
  });
});
