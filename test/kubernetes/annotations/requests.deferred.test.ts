import { beforeEach, describe, expect, test } from 'vitest';
import { Code } from '../../../src/core/grpc.ts';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';
import { web } from '../../support/resize/fake-resizes.ts';
import { AnnotatedPod, runPending, size, unknownVolume, volumesOf } from '../../support/kubernetes/annotated-pod.ts';

const inUse = new ShimError(
  Code.FAILED_PRECONDITION,
  Reason.VOLUME_IN_USE,
  'volume cache stores 200: it cannot shrink to 128',
);

const pod = new AnnotatedPod();

describe('an annotation that does not fit yet', () => {
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
