import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CriClient } from '../support/cri/client.ts';
import { ShimProcess } from '../support/cri/shim.ts';
import { ResizeClient } from '../support/resize-api-client.ts';
import { type PodReport, type PodWatcher, WatcherProcess } from '../watch/watcher.ts';
import { type PodAmounts, removesLimits } from './amounts.ts';
import type { MatrixCase } from './cases.ts';
import { type Clients, MatrixPod, type PodShape } from './matrix-pod.ts';
import { type Sums, expected, observe, processesOf, sumsOf } from './observe.ts';
import { type Way, ways } from './ways/index.ts';

const RESIZE_SOCKET = '/run/cri-resize-shim/matrix-resize.sock';

/** Defines a test for each case and each way that it can go, with one shim for all of them. */
export function defineMatrix(cases: readonly MatrixCase[]): void {
  let shim: ShimProcess;
  let clients: Clients;
  let watchers: WatcherProcess;
  const pods = new Pods();

  beforeAll(async () => {
    shim = await ShimProcess.start({ args: ['--resize-listen', `unix://${RESIZE_SOCKET}`] });
    clients = { cri: new CriClient(shim.address), api: new ResizeClient(RESIZE_SOCKET) };
    watchers = new WatcherProcess();
  });

  afterAll(async () => {
    await watchers.end();
    await pods.remove();
    clients.cri.close();
    clients.api.close();
    expect(await shim.stop()).toBe(0);
    // How often in one of them is for the processor to say, which others share.
    expect(polled.readings, 'readings while pods were resized').toBeGreaterThan(4 * polled.resizes);
  });

  // Not describe.each: it shortens names.
  for (const matrixCase of cases) {
    describe(`${matrixCase.group}: ${matrixCase.title}`, () => {
      for (const way of ways.filter((each) => canGo(each, matrixCase))) {
        test(way.name, () => pods.use(clients, matrixCase, (pod) => walk(pod, matrixCase, way, watchers)));
      }
    });
  }
}

/** kubelet takes no limit away: for a case that does, the other ways are left. */
function canGo(way: Way, { start, stages }: MatrixCase): boolean {
  const points = [start, ...stages];
  return way.removesLimits || !points.some((point, at) => at > 0 && removesLimits(points[at - 1]!, point));
}

/** Pods for the cases: those that start alike share one, until one leaves it other than it was. */
class Pods {
  readonly #pods = new Map<string, MatrixPod>();

  /** `action` says whether it has left the pod's containers as they were. */
  async use(clients: Clients, shape: PodShape, action: (pod: MatrixPod) => Promise<boolean>): Promise<void> {
    const key = JSON.stringify([shape.containers, shape.start]);
    const pod = this.#pods.get(key) ?? (await MatrixPod.run(clients, shape));
    this.#pods.delete(key);
    let atStart = false;
    try {
      pod.reset();
      atStart = await action(pod);
    } finally {
      if (atStart) this.#pods.set(key, pod);
      else await pod.running.remove();
    }
  }

  async remove(): Promise<void> {
    for (const pod of this.#pods.values()) await pod.running.remove();
  }
}

/**
 * Resizes a pod through all stages of its case, and back to the start where the way can, looking at it after each. Says whether
 * it got back.
 */
async function walk(
  pod: MatrixPod,
  { start, stages }: MatrixCase,
  way: Way,
  watchers: WatcherProcess,
): Promise<boolean> {
  const last = stages.at(-1)!;
  const returns = way.removesLimits || !removesLimits(last, start);
  let values = pod.values(start);
  let from = start;
  const before = await observe(pod);
  const processes = processesOf(before);
  expect(before, 'at the start').toEqual(expected(pod, start, values, processes));
  const stands = [sumsOf(before)];
  const watcher = await watchers.watch(pod.running);
  let report: PodReport;
  try {
    for (const to of returns ? [...stages, start] : stages) {
      await polling(watcher, () => way.resize(pod, from, to, values));
      values = way.podAfter(pod, values, to);
      const now = await observe(pod);
      expect(now, JSON.stringify(to)).toEqual(expected(pod, to, values, processes, way.reserves ? to : start));
      stands.push(sumsOf(now));
      from = to;
    }
  } finally {
    report = await watcher.report();
  }
  assertWatched(report, stands, way, start);
  return returns;
}

/** Nothing that it forbids was seen, and each state that was to be seen was, in their order. */
function assertWatched(report: PodReport, stands: readonly Sums[], way: Way, start: PodAmounts): void {
  expect(report.violations.filter((line) => !isOfKubelet(line, way, start))).toEqual([]);
  for (const resource of ['memory', 'cpu'] as const) {
    const lines = stands.map((sums) => sums[resource]);
    const what = `${lines.join('; ')}, one after the other in ${report.seen.join('; ')}`;
    expect(inOrder(report.seen, lines), what).toBe(true);
  }
}

const polled = { resizes: 0, readings: 0 };

/** While something is carried out, the watcher reads the pod's limits on its own, again and again. */
async function polling(watcher: PodWatcher, action: () => Promise<void>): Promise<void> {
  const before = await watcher.readings();
  await action();
  // Of these the last one need not have been before the end.
  polled.readings += (await watcher.readings()) - before - 1;
  polled.resizes += 1;
}

/** Whether all of `lines` are in `seen`, in their order; what stays as it was is there once. */
function inOrder(seen: readonly string[], lines: readonly string[]): boolean {
  let at = -1;
  for (const [index, line] of lines.entries()) {
    if (index > 0 && line === lines[index - 1]) continue;
    at = seen.indexOf(line, at + 1);
    if (at === -1) return false;
  }
  return true;
}

/**
 * kubelet limits a pod before the container that gets its first limit, since it counts "no limit" as -1: until then the
 * container has none, whatever stands between kubelet and the runtime.
 */
const isOfKubelet = (violation: string, way: Way, start: PodAmounts): boolean =>
  !way.removesLimits &&
  /: containers Infinity,/.test(violation) &&
  Object.values(start).some(({ cpu, memory }) => cpu?.limit === undefined || memory?.limit === undefined);
