import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CriClient } from '../cri/client.ts';
import { ShimProcess } from '../cri/shim.ts';
import type { WatchReport } from '../e2e/watch-limits.ts';
import { LimitWatcher } from '../e2e/watcher.ts';
import { type PodAmounts, removesLimits } from './amounts.ts';
import type { MatrixCase } from './cases.ts';
import { MatrixPod, type PodShape } from './matrix-pod.ts';
import { expected, observe, pidsOf } from './observe.ts';
import { type Way, ways } from './ways/index.ts';

/** Defines a test for each case and each way that it can go, with one shim for all of them. */
export function defineMatrix(cases: readonly MatrixCase[]): void {
  let shim: ShimProcess;
  let client: CriClient;
  const pods = new Pods();

  beforeAll(async () => {
    shim = await ShimProcess.start();
    client = new CriClient(shim.address);
  });

  afterAll(async () => {
    await pods.remove();
    client.close();
    expect(await shim.stop()).toBe(0);
  });

  // Not describe.each: it shortens names.
  for (const matrixCase of cases) {
    describe(`${matrixCase.group}: ${matrixCase.title}`, () => {
      for (const way of ways.filter((each) => canGo(each, matrixCase))) {
        test(way.name, () => pods.use(client, matrixCase, (pod) => walk(pod, matrixCase, way)));
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
  async use(client: CriClient, shape: PodShape, action: (pod: MatrixPod) => Promise<boolean>): Promise<void> {
    const key = JSON.stringify([shape.containers, shape.start]);
    const pod = this.#pods.get(key) ?? (await MatrixPod.run(client, shape));
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
async function walk(pod: MatrixPod, { start, stages }: MatrixCase, way: Way): Promise<boolean> {
  const last = stages.at(-1)!;
  const returns = way.removesLimits || !removesLimits(last, start);
  let values = pod.values(start);
  let from = start;
  const before = await observe(pod);
  const pids = pidsOf(before);
  expect(before, 'at the start').toEqual(expected(pod, start, values, pids));
  const watcher = await LimitWatcher.watch(pod.running);
  let report: WatchReport;
  try {
    for (const to of returns ? [...stages, start] : stages) {
      await way.resize(pod, from, to);
      values = way.podAfter(pod, values, to);
      expect(await observe(pod), JSON.stringify(to)).toEqual(expected(pod, to, values, pids));
      from = to;
    }
  } finally {
    report = await watcher.report();
  }
  const { violations, readings } = report;
  expect(readings).toBeGreaterThan(stages.length);
  expect(violations.filter((line) => !isOfKubelet(line, way, start))).toEqual([]);
  return returns;
}

/**
 * kubelet limits a pod before the container that gets its first limit, since it counts "no limit" as -1: until then the
 * container has none, whatever stands between kubelet and the runtime.
 */
const isOfKubelet = (violation: string, way: Way, start: PodAmounts): boolean =>
  !way.removesLimits &&
  /: containers Infinity,/.test(violation) &&
  Object.values(start).some(({ cpu, memory }) => cpu?.limit === undefined || memory?.limit === undefined);
