import { cpuShares } from '../../src/core/quantities/numbers.ts';
import { encode } from '../../src/runtime/codec.ts';
import { load, type SideResults } from '../calls/load.ts';
import type { Side } from '../calls/sides.ts';
import type { Call } from '../client/client.ts';
import { Connection } from '../client/connection.ts';
import { loadByGo } from '../client/go.ts';
import {
  type Amounts,
  amountsAtStart,
  assertContainerFiles,
  assertFiles,
  bytesOf,
  type FakePod,
  quotaOf,
  sharesOf,
} from '../fake/pods.ts';
import { type FakePods, startFakePods } from '../fake/start.ts';
import { LogReader } from '../log-reader.ts';
import { runtimeCall, version } from '../operations.ts';
import { type Shim, startShim } from '../shim.ts';
import { median, percentile } from '../statistics.ts';
import type { WorkOptions } from './options.ts';
import { resizePodCall, stateOf } from './resize-api.ts';
import { part, type WorkResult } from './result.ts';

const PODS = 200;
/** The duration of an update by runc and its processes, and as many concurrent updates as the node has processors. */
const UPDATES = { milliseconds: 20, atOnce: 2 };
/** Each round resizes all pods up and then down. */
const ROUNDS = 3;
/** Only memory is resized, because this machine has too few processors for the CPU requests of so many pods. */
const MORE_MI = 64;

/** How the pods are resized. */
interface Way {
  readonly name: string;
  readonly connection: Connection;
  readonly callOf: (pod: FakePod, amounts: Amounts) => Call;
  /** Throws unless the response says that the pod was resized. */
  readonly check: (response: Buffer) => void;
  /** Throws unless the pod has these amounts. The pod's own shares change only by ResizePod or by kubelet. */
  readonly assertResized: typeof assertFiles;
  readonly isThroughShim: boolean;
}

/** One resize of all pods at once. */
interface Storm {
  /** Milliseconds until the last answer. */
  readonly all: number;
  /** Milliseconds until each pod's answer, in ascending order. */
  readonly each: readonly number[];
}

/**
 * Resizes 200 pods at once: by UpdateContainerResources directly, the same through the shim, and by ResizePod. Compares
 * how long all of them take, how evenly the pods are served, and how long a forwarded call takes meanwhile. The fake
 * runtime takes as long for an update as a real one, without a processor's time.
 */
export async function measureStorm(options: WorkOptions): Promise<WorkResult[]> {
  const { children } = options;
  const fake = await startFakePods(children, 'fake-storm', { pods: PODS, containers: 1, updates: UPDATES });
  const stateFolder = `${children.folderOnDisk()}/state`;
  const shim = await startShim(children, 'shim-storm', { ...fake, stateFolder });
  const log = new LogReader(shim.child.logFile);
  await shim.child.until(log.line('registry compared with the backend'));
  log.close();
  const ways = await openWays(fake, shim);
  const results = await shim.child.until(measureWays(options, fake, shim, ways));
  for (const { connection } of ways) connection.close();
  await shim.child.stop();
  await fake.stop();
  return results;
}

async function openWays({ backend }: FakePods, { socket, resizeSocket }: Shim): Promise<Way[]> {
  const update = { callOf: updateCall, check: () => undefined, assertResized: assertContainerFiles };
  const check = (response: Buffer): void => {
    const state = stateOf(response);
    if (state !== 'COMPLETED') throw new Error(`a resize is ${state}`);
  };
  const callOf = (pod: FakePod, amounts: Amounts): Call => resizePodCall(pod, [amounts]);
  return [
    { ...update, name: 'directly', connection: await Connection.open(backend), isThroughShim: false },
    { ...update, name: 'UpdateContainerResources', connection: await Connection.open(socket), isThroughShim: true },
    {
      ...{ name: 'ResizePod', connection: await Connection.open(resizeSocket), isThroughShim: true },
      ...{ callOf, check, assertResized: assertFiles },
    },
  ];
}

function updateCall({ containers: [container] }: FakePod, { memoryMi, milliCpu }: Amounts): Call {
  const linux = {
    cpu_period: 100_000n,
    cpu_quota: BigInt(quotaOf(milliCpu)),
    cpu_shares: BigInt(cpuShares(sharesOf(milliCpu))),
    memory_limit_in_bytes: BigInt(bytesOf(memoryMi)),
  };
  const request = { container_id: container?.id ?? '', linux };
  return runtimeCall('UpdateContainerResources', Buffer.from(encode('UpdateContainerResourcesRequest', request)));
}

async function measureWays(
  options: WorkOptions,
  fake: FakePods,
  shim: Shim,
  ways: readonly Way[],
): Promise<WorkResult[]> {
  const storms = new Map<string, Storm[]>(ways.map(({ name }) => [name, []]));
  for (let round = -1; round < ROUNDS; round += 1)
    for (const way of ways) {
      const both = [await resizeAll(fake, way, true), await resizeAll(fake, way, false)];
      // The first one also compiles the code.
      if (round >= 0) storms.get(way.name)?.push(...both);
    }
  const quiet = await forwarded(options, fake, shim);
  const results: WorkResult[] = latencies('Storm, before it', quiet);
  const direct = median((storms.get('directly') ?? []).map(({ all }) => all));
  for (const way of ways) {
    const own = storms.get(way.name) ?? [];
    results.push(part(`Storm, ${way.name}`, 'ms', median(own.map(({ all }) => all)), own.length));
    if (!way.isThroughShim) continue;
    const slowest = own.map(({ each }) => percentile(each, 1) / percentile(each, 0.5));
    const meanwhile = await duringStorm(options, fake, shim, way);
    results.push(
      part(`Storm, ${way.name}: throughput`, 'times', median(own.map(({ all }) => direct / all)), own.length),
      part(`Storm, ${way.name}: slowest pod`, 'times', median(slowest), own.length),
      part(`Storm, ${way.name}: p99 of a forwarded call`, 'times', slowdown(quiet, meanwhile), 1),
      ...latencies('  meanwhile', meanwhile),
    );
  }
  return results;
}

async function resizeAll({ pods, cgroupRoot }: FakePods, way: Way, isUp: boolean): Promise<Storm> {
  const start = amountsAtStart(0);
  const amounts = { ...start, memoryMi: start.memoryMi + (isUp ? MORE_MI : 0) };
  const calls = pods.map((pod) => way.callOf(pod, amounts));
  const begin = performance.now();
  const each = await Promise.all(
    calls.map(async (call) => {
      way.check(await way.connection.call(call));
      return performance.now() - begin;
    }),
  );
  for (const pod of pods) way.assertResized(cgroupRoot, pod, [amounts]);
  return { all: Math.max(...each), each: each.toSorted((a, b) => a - b) };
}

/** Measures a forwarded call, with one in flight, directly and through the shim. */
async function forwarded(
  { children, programs, seconds }: WorkOptions,
  { backend }: FakePods,
  { socket }: Shim,
): Promise<SideResults> {
  const options = { call: version, inFlight: 1, seconds };
  const sides: Pick<Side, 'name' | 'socket' | 'child'>[] = [
    { name: 'direct', socket: backend, child: undefined },
    { name: 'shim', socket, child: undefined },
  ];
  if (programs !== undefined) return loadByGo(children, programs, sides, { ...options, intervalMs: INTERVAL_MS });
  const [direct, through] = [await Connection.open(backend), await Connection.open(socket)];
  const results = await load(
    [
      { name: 'direct', client: direct },
      { name: 'shim', client: through },
    ],
    options,
  );
  direct.close();
  through.close();
  return results;
}

/** The interval of kubelet's calls on a busy node. */
const INTERVAL_MS = 2;

/** Measures the forwarded call while the pods are resized again and again. */
async function duringStorm(options: WorkOptions, fake: FakePods, shim: Shim, way: Way): Promise<SideResults> {
  const ending = new AbortController();
  const measured = forwarded(options, fake, shim).finally(() => ending.abort());
  while (!ending.signal.aborted) {
    await resizeAll(fake, way, true);
    await resizeAll(fake, way, false);
  }
  return measured;
}

const latencies = (when: string, { direct, shim }: SideResults): WorkResult[] => [
  part(`${when}: p99 of a forwarded call`, 'ms', (shim?.p99us ?? Number.NaN) / 1000, 1),
  part(`${when}: p99 of a direct call`, 'ms', (direct?.p99us ?? Number.NaN) / 1000, 1),
];

/** Returns the factor by which the storm slows calls through the shim, beyond its effect on direct calls. */
function slowdown(quiet: SideResults, meanwhile: SideResults): number {
  const times = (side: 'direct' | 'shim'): number =>
    (meanwhile[side]?.p99us ?? Number.NaN) / (quiet[side]?.p99us ?? Number.NaN);
  return times('shim') / Math.max(1, times('direct'));
}
