import { expect, onTestFinished, test, vi } from 'vitest';
import { noLog } from '../../../src/core/observe/interfaces.ts';
import { runtimePath } from '../../../src/runtime/backend.ts';
import { encode } from '../../../src/runtime/codec.ts';
import type { UsageSource } from '../../../src/sandbox/foresight/comparison.ts';
import type { DecreaseReclaimer } from '../../../src/sandbox/foresight/decrease-reclaimer.ts';
import type { Node } from '../../../src/sandbox/node.ts';
import { listContainerStats, podSandboxStats, podSandboxStatsAnswered } from '../../../src/server/handlers/stats.ts';
import { createInterceptors } from '../../../src/server/handlers/table.ts';
import type { DelayedCall } from '../../../src/server/proxy/interception.ts';

// kubelet compares the answer with the memory limits that it is about to lower.

/** A pod `s` whose usage is above its new limits until `release` is called, and what has happened in order. */
class BlockedPod {
  readonly events: string[] = [];
  /** Resolves when it is known what kubelet has admitted. */
  reading: Promise<void> | undefined;
  release = (): void => undefined;
  readonly #comparable = new Promise<void>((resolve) => (this.release = resolve));
  readonly node = {
    registry: { pods: [{ sandboxId: 's', metadata: { uid: 'u' } }] },
    kubelet: {
      refreshed: () => {
        this.events.push('refresh');
        return this.reading;
      },
    },
    log: noLog,
    failOpen: (reason: string) => this.events.push(reason),
  } as unknown as Node;
  readonly decreaseReclaimer = {
    comparable: (uid: string, source: UsageSource, reading?: Promise<void>) => {
      this.events.push(`${uid} ${source}`);
      expect(reading).toBe(this.reading);
      return this.#comparable;
    },
    measuredByRuntime: (uid: string) => this.events.push(`${uid} measured`),
  } as unknown as DecreaseReclaimer;
}

const callOf = (request: Uint8Array, timeoutMs = Infinity): DelayedCall => ({
  path: '/stats',
  request,
  timeoutMs,
  onEnd: () => undefined,
});
const ofPod = encode('ListContainerStatsRequest', { filter: { pod_sandbox_id: 's' } });
const ofSandbox = encode('PodSandboxStatsRequest', { pod_sandbox_id: 's' });

test.each([
  ['ListContainerStats', listContainerStats, ofPod, 'u cadvisor'],
  ['PodSandboxStats', podSandboxStats, ofSandbox, 'u runtime'],
] as const)(
  'KEP-1287: %s of a pod is forwarded once its usage is comparable',
  async (_method, delayOf, request, asked) => {
    const pod = new BlockedPod();
    pod.reading = Promise.resolve();
    let isForwarded = false;
    const waiting = delayOf(pod.node, pod.decreaseReclaimer)(callOf(request))?.then(() => (isForwarded = true));
    await new Promise(setImmediate);
    expect([pod.events, isForwarded]).toEqual([['refresh', asked], false]);
    pod.release();
    expect(await waiting).toBe(true);
  },
);

test.each([
  ['of all pods', encode('ListContainerStatsRequest', {}), []],
  ['of one container', Buffer.from([0x0a, 3, 0x0a, 1, 0x63]), []],
  ['of an unknown pod', encode('ListContainerStatsRequest', { filter: { pod_sandbox_id: 'x' } }), []],
  ['that cannot be decoded', Buffer.from([0x0a, 0xff]), ['undecodable']],
  ['that is too long to be read', Buffer.alloc(64 * 1024 + 1, 0xff), []],
] as const)('ListContainerStats %s is forwarded at once', (_which, request, events) => {
  const pod = new BlockedPod();
  expect(listContainerStats(pod.node, pod.decreaseReclaimer)(callOf(request))).toBeUndefined();
  expect(pod.events).toEqual(events);
});

test.each([
  [10_000, 5000],
  [4000, 0],
  [120_000, 40_000],
])(
  'KEP-1287: a delayed stats call is forwarded 5 s before the timeout of its caller, after 40 s at most: %i ms',
  async (timeoutMs, delayMs) => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const pod = new BlockedPod();
    let isForwarded = false;
    const call = callOf(ofPod, timeoutMs);
    void listContainerStats(pod.node, pod.decreaseReclaimer)(call)?.then(() => (isForwarded = true));
    await vi.advanceTimersByTimeAsync(Math.max(0, delayMs - 1));
    expect(isForwarded).toBe(delayMs === 0);
    await vi.advanceTimersByTimeAsync(2);
    expect(isForwarded).toBe(true);
  },
);

test('a successful PodSandboxStats is reported to the reclaimer and returned unchanged', () => {
  const pod = new BlockedPod();
  const exchange = { path: '/stats', request: ofSandbox, response: Buffer.from('stats'), backendMs: 1 };
  expect(
    podSandboxStatsAnswered(pod.node, pod.decreaseReclaimer)(exchange, { fields: {}, backendMs: 1 }),
  ).toBeUndefined();
  expect(pod.events).toEqual(['u measured']);
});

test('KEP-1287: delayed stats calls of kubelet, including streams, take no channel of the shim, and only PodSandboxStats is read', () => {
  const parts = [{}, {}, {}] as unknown as Parameters<typeof createInterceptors>;
  const { handlers, amendments, streams, delays } = createInterceptors(...parts);
  const stats = ['ListContainerStats', 'StreamContainerStats', 'PodSandboxStats'].map(runtimePath);
  expect(stats.map((path) => delays.has(path))).toEqual([true, true, true]);
  expect(stats.map((path) => handlers.has(path) || streams.has(path))).toEqual([false, false, false]);
  expect(stats.map((path) => amendments.has(path))).toEqual([false, false, true]);
});
