import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CriClient } from '../support/cri/client.ts';
import { ShimProcess } from '../support/cri/shim.ts';
import { FakeApiServer } from '../support/kubernetes/fake-api-server.ts';
import { ResizeClient } from '../support/resize-api/client.ts';
import { type PodReport, type PodWatcher, WatcherProcess } from '../watch/watcher.ts';
import type { MatrixCase, PodAmounts } from './cases.ts';
import { removesLimits } from './cases.ts';
import { type Clients, MatrixPod, type PodShape } from './matrix-pod.ts';
import { expected, observe, processesOf, type Sums, sumsOf } from './observe.ts';
import { type Way, ways } from './ways/index.ts';

const RESIZE_SOCKET = '/run/cri-resize-shim/matrix-resize.sock';

/** Defines a test for each case and each way of resizing that supports it, with one shim for all tests. */
export function defineMatrix(cases: readonly MatrixCase[]): void {
  let folder: string;
  let server: FakeApiServer;
  let shim: ShimProcess;
  let clients: Clients;
  let watchers: WatcherProcess;
  const pods = new Pods();

  beforeAll(async () => {
    // The pods of all cases together request more CPU than the test node has. The Node says that it has enough.
    folder = mkdtempSync(join(tmpdir(), 'matrix-'));
    server = await new FakeApiServer().start();
    server.nodes.set('node-1', { cpu: '64', memory: '64Gi' });
    const kubeconfig = ['--kubeconfig', server.kubeconfig(join(folder, 'kubeconfig')), '--node-name', 'node-1'];
    shim = await ShimProcess.start({ args: ['--resize-listen', `unix://${RESIZE_SOCKET}`, ...kubeconfig] });
    await shim.waitForLog(({ msg }) => msg === 'allocatable of the node read');
    clients = { cri: new CriClient(shim.address), api: new ResizeClient(RESIZE_SOCKET) };
    watchers = new WatcherProcess();
  });

  afterAll(async () => {
    await watchers.end();
    await pods.remove();
    clients.cri.close();
    clients.api.close();
    expect(await shim.stop()).toBe(0);
    await server.stop();
    rmSync(folder, { recursive: true });
    // An average: the number of readings in a single resize depends on the load of the machine.
    expect(polled.readings, 'readings while pods were resized').toBeGreaterThan(4 * polled.resizes);
  });

  // Does not use describe.each, which shortens names.
  for (const matrixCase of cases) {
    describe(`${matrixCase.group}: ${matrixCase.title}`, () => {
      for (const way of ways.filter((each) => isSupported(each, matrixCase))) {
        test(way.name, () =>
          pods.use(clients, matrixCase, (pod) => resizeThroughStages(pod, matrixCase, way, watchers)),
        );
      }
    });
  }
}

/** Whether a way supports a case. kubelet cannot remove limits. */
function isSupported(way: Way, { start, stages }: MatrixCase): boolean {
  const points = [start, ...stages];
  return way.removesLimits || !points.some((point, at) => at > 0 && removesLimits(points[at - 1]!, point));
}

/** Pods for the cases. Cases with equal starts share a pod, until a case does not restore it. */
class Pods {
  readonly #pods = new Map<string, MatrixPod>();

  /** Runs `action`, which returns whether the pod's containers are at the start again. */
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
 * Resizes a pod through all stages of its case, and back to the start if the way supports that. Checks the pod after
 * each resize. Returns whether the pod is at the start again.
 */
async function resizeThroughStages(
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
  let observed = before;
  expect(before, 'at the start').toEqual(expected(pod, start, values, processes));
  const observedSums = [sumsOf(before)];
  const watcher = await watchers.watch(pod.running);
  let report: PodReport;
  try {
    for (const to of returns ? [...stages, start] : stages) {
      if (way.refusal?.applies(pod, to) === true) {
        await way.refusal.resize(pod, to);
        expect(await observe(pod), JSON.stringify(to)).toEqual(observed);
        continue;
      }
      const reserved = way.reservedAfter(pod, to);
      await polling(watcher, () => way.resize(pod, from, to, values));
      pod.reserved = reserved;
      values = way.podAfter(pod, values, to);
      const now = await observe(pod);
      expect(now, JSON.stringify(to)).toEqual(expected(pod, to, values, processes));
      observedSums.push(sumsOf(now));
      from = to;
      observed = now;
    }
  } finally {
    report = await watcher.report();
  }
  assertWatched(report, observedSums, way, start);
  return returns;
}

/** Asserts that the watcher saw no violation, and saw all states in order. */
function assertWatched(report: PodReport, observedSums: readonly Sums[], way: Way, start: PodAmounts): void {
  expect(report.violations.filter((line) => !isCausedByKubelet(line, way, start))).toEqual([]);
  for (const resource of ['memory', 'cpu'] as const) {
    const lines = observedSums.map((sums) => sums[resource]);
    const what = `expected ${lines.join('; ')} in this order in ${report.seen.join('; ')}`;
    expect(inOrder(report.seen, lines), what).toBe(true);
  }
}

const polled = { resizes: 0, readings: 0 };

/** Runs `action`, and counts how often the watcher reads the pod's limits meanwhile. */
async function polling(watcher: PodWatcher, action: () => Promise<void>): Promise<void> {
  const before = await watcher.readings();
  await action();
  // The last reading may have been after the end of the action.
  polled.readings += (await watcher.readings()) - before - 1;
  polled.resizes += 1;
}

/** Whether `seen` contains all of `lines` in order. Equal consecutive lines are recorded once. */
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
 * Whether kubelet causes a violation. It limits a pod before the container that gets its first limit, since it counts
 * "no limit" as -1: until then the container has no limit, with or without the shim.
 */
const isCausedByKubelet = (violation: string, way: Way, start: PodAmounts): boolean =>
  !way.removesLimits &&
  /: containers Infinity,/.test(violation) &&
  Object.values(start).some(({ cpu, memory }) => cpu?.limit === undefined || memory?.limit === undefined);
