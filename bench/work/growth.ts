import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { request } from 'node:http';
import { createConnection } from 'node:net';
import { buffer, text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { MONITORING_LIMITS } from '../../src/monitoring/limits.ts';
import { builtFile } from '../built-file.ts';
import type { Children } from '../children.ts';
import { Connection } from '../client/connection.ts';
import { type FakePods, startFakePods } from '../fake/start.ts';
import type { LoopReport } from '../inside/loop.ts';
import { LogReader } from '../log-reader.ts';
import { runtimeCall } from '../operations.ts';
import { residentMB } from '../process-use.ts';
import { bytes } from '../protobuf.ts';
import { type Shim, startShim } from '../shim.ts';
import { median, rounded } from '../statistics.ts';
import { writeCheckpoints } from './node-files.ts';
import type { WorkOptions } from './options.ts';
import { recoverOnce } from './recovery.ts';
import type { WorkResult } from './result.ts';

export const growthSizes = [10, 110, 500, 1000] as const;
const CONTAINERS = 2;
/** An odd number, so that the median is one of the measurements. */
const REPEATS = 5;
/** foresight reads a file this long after a change, and needs at most the same time again. */
const FORESIGHT_MS = 300;

/** Figures of one size. Times are medians, in milliseconds. */
interface Growth {
  readonly pods: number;
  readonly heapBytes: number;
  readonly rssMB: number;
  readonly anonymousMB: number;
  readonly startMs: number;
  readonly recoveryMs: number;
  readonly activities: readonly Activity[];
}

/** An activity that a shim runs on request. */
interface Activity {
  readonly name: string;
  /** Undefined if the end of the activity cannot be observed. */
  readonly tookMs: number | undefined;
  /** The longest turn of the event loop during the activity: the median of the repetitions. */
  readonly turnMs: number;
  /** The most CPU time of the main thread in one turn: the median of the repetitions. */
  readonly cpuMs: number;
}

/**
 * Measures what depends on the number of pods, on a fake node: memory, start, recovery, the status page, metrics,
 * `resizectl get pods`, and the reading of kubelet's checkpoints.
 */
export async function measureGrowth({ children, progress }: WorkOptions): Promise<WorkResult[]> {
  const all: Growth[] = [];
  for (const pods of growthSizes) {
    progress(`growth, ${pods} pods ...`);
    const fake = await startFakePods(children, `fake-growth-${pods}`, { pods, containers: CONTAINERS });
    all.push(await measureSize(children, fake));
    await fake.stop();
  }
  return resultsOf(all);
}

async function measureSize(children: Children, fake: FakePods): Promise<Growth> {
  const pods = fake.pods.length;
  const starts: number[] = [];
  const recoveries: number[] = [];
  for (let index = 0; index < REPEATS; index += 1) {
    const begin = performance.now();
    const { child } = await startShim(children, `growth-${pods}-${index}`, fake);
    starts.push(performance.now() - begin);
    await child.stop();
    recoveries.push((await recoverOnce(children, fake, `growth-recovered-${pods}-${index}`)).recovered);
  }
  const kubeletRoot = children.path(`growth-kubelet-${pods}`);
  mkdirSync(kubeletRoot);
  const [loop, metrics] = [children.path(`growth-${pods}.loop`), children.path(`growth-${pods}.metrics`)];
  const flags = ['--metrics-bind', `unix://${metrics}`];
  const shim = await startShim(children, `growth-${pods}`, { ...fake, kubeletRoot, flags }, { CRI_BENCH_LOOP: loop });
  const log = new LogReader(shim.child.logFile);
  await shim.child.until(log.line('registry compared with the backend'));
  log.close();
  const activities = await measureActivities(children, { fake, shim, kubeletRoot, loop, metrics });
  const { heapBytes } = await reportOf(loop);
  const { all, anonymous } = residentMB(shim.child.pid);
  await shim.child.stop();
  return {
    pods,
    heapBytes,
    rssMB: all,
    anonymousMB: anonymous,
    startMs: median(starts),
    recoveryMs: median(recoveries),
    activities,
  };
}

interface Stage {
  readonly fake: FakePods;
  readonly shim: Shim;
  readonly kubeletRoot: string;
  readonly loop: string;
  readonly metrics: string;
}

/** Measures the activities. Also makes each kind of request once, as the memory measurement requires. */
async function measureActivities(
  children: Children,
  { fake, shim, kubeletRoot, loop, metrics }: Stage,
): Promise<Activity[]> {
  const connection = await Connection.open(shim.socket);
  const ids = fake.pods.flatMap(({ containers }) => containers.map(({ id }) => id));
  const run = async (name: string, act: (round: number) => Promise<void>, hasEnd = true): Promise<Activity> => {
    const [took, turns, cpu]: [number[], number[], number[]] = [[], [], []];
    // The first time also compiles the code.
    for (let round = 0; round <= REPEATS; round += 1) {
      await reportOf(loop);
      const begin = performance.now();
      await act(round);
      const end = performance.now();
      const { longestTurnMs, longestCpuMs } = await reportOf(loop);
      if (round === 0) continue;
      took.push(end - begin);
      turns.push(longestTurnMs);
      cpu.push(longestCpuMs);
    }
    return { name, tookMs: hasEnd ? median(took) : undefined, turnMs: median(turns), cpuMs: median(cpu) };
  };
  const activities = [
    await run('ContainerStatus of all containers', async () => {
      for (const id of ids) await connection.call(runtimeCall('ContainerStatus', bytes(1, id)));
    }),
    await run('status page', () => get(metrics, '/')),
    await run('metrics scrape', () => get(metrics, '/metrics')),
    await run('resizectl get pods', () => getPods(children, shim)),
    await run(
      "reading kubelet's checkpoints",
      async (round) => {
        writeCheckpoints(kubeletRoot, fake.pods, round);
        await delay(FORESIGHT_MS);
      },
      false,
    ),
  ];
  connection.close();
  return activities;
}

async function get(socketPath: string, path: string): Promise<void> {
  // The server takes one request from each connection.
  const sent = request({ socketPath, path, headers: { host: 'localhost' }, agent: false });
  sent.end();
  const responded = once(sent, 'response').catch((error: unknown) => {
    throw new Error(`${path}: no response; a connection lasts ${MONITORING_LIMITS.connectionMs} ms`, { cause: error });
  });
  const [response] = (await responded) as [NodeJS.ReadableStream & { readonly statusCode?: number }];
  const body = await buffer(response);
  if (response.statusCode !== 200)
    throw new Error(`${path}: status ${response.statusCode ?? 'none'}: ${body.toString()}`);
}

async function getPods(children: Children, { resizeSocket }: Shim): Promise<void> {
  const args = ['get', 'pods', '--all-namespaces', '--endpoint', `unix://${resizeSocket}`];
  const child = children.spawn('resizectl', process.execPath, [builtFile('resizectl.js'), ...args]);
  const { stdout } = child.process;
  if (stdout === null) throw new Error('resizectl has no stdout');
  const printed = await text(stdout);
  await child.exited;
  if (child.process.exitCode !== 0 || printed === '') throw new Error(`resizectl has failed:\n${child.lastOutput()}`);
}

async function reportOf(loop: string): Promise<LoopReport> {
  return JSON.parse(await text(createConnection(loop))) as LoopReport;
}

const KIBIBYTE = 1024;

function resultsOf(all: readonly Growth[]): WorkResult[] {
  const row = (name: string, unit: WorkResult['unit'], of: (one: Growth) => number | undefined): WorkResult[] =>
    all.flatMap((one) => {
      const value = of(one);
      const on = `${one.pods} pods`;
      return value === undefined
        ? []
        : [{ work: `Growth, ${name}`, on, unit, p50: rounded(value, 2), samples: REPEATS }];
    });
  const names = all[0]?.activities.map(({ name }) => name) ?? [];
  const activity = (one: Growth, name: string): Activity | undefined =>
    one.activities.find((each) => each.name === name);
  return [
    ...row('memory', 'MB', ({ rssMB }) => rssMB),
    ...row('anonymous memory', 'MB', ({ anonymousMB }) => anonymousMB),
    ...row('heap', 'MB', ({ heapBytes }) => heapBytes / (KIBIBYTE * KIBIBYTE)),
    ...heapOfEach(all),
    ...row('first answer', 'ms', ({ startMs }) => startMs),
    ...row('recovery', 'ms', ({ recoveryMs }) => recoveryMs),
    ...names.flatMap((name) => [
      ...row(name, 'ms', (one) => activity(one, name)?.tookMs),
      ...row(`longest turn, ${name}`, 'ms', (one) => activity(one, name)?.turnMs),
      ...row(`longest turn, ${name}, CPU time`, 'ms', (one) => activity(one, name)?.cpuMs),
    ]),
    ...row('longest turn of all', 'ms', ({ activities }) => Math.max(...activities.map(({ turnMs }) => turnMs))),
    ...row('longest turn of all, CPU time', 'ms', ({ activities }) =>
      Math.max(...activities.map(({ cpuMs }) => cpuMs)),
    ),
  ];
}

/** The heap that each pod and each container adds, between the smallest and the largest node. */
function heapOfEach(all: readonly Growth[]): WorkResult[] {
  const [smallest, largest] = [all[0], all.at(-1)];
  if (smallest === undefined || largest === undefined) return [];
  const objects = (largest.pods - smallest.pods) * (1 + CONTAINERS);
  const each = (largest.heapBytes - smallest.heapBytes) / objects / KIBIBYTE;
  return [{ work: 'Growth, heap of each pod and container', unit: 'KiB', p50: rounded(each, 2), samples: 1 }];
}
