import { mkdirSync, readFileSync } from 'node:fs';
import type { Call } from '../client/client.ts';
import { Connection } from '../client/connection.ts';
import { type Amounts, amountsAtStart, assertFiles, type FakePod } from '../fake/pods.ts';
import { type FakePods, startFakePods } from '../fake/start.ts';
import { type Notes, type Span, timeIn } from '../inside/notes.ts';
import { LogReader } from '../log-reader.ts';
import { cpuMicroseconds } from '../process-use.ts';
import { type Shim, startShim } from '../shim.ts';
import { rounded } from '../statistics.ts';
import type { WorkOptions } from './options.ts';
import { resizePodCall, stateOf } from './resize-api.ts';
import { resultOf, type WorkResult } from './result.ts';

const CONTAINERS = 3;
/** Enough for V8 to compile the code of a resize. A shim starts once and resizes for months. */
const WARM_UP_RESIZES = 400;
const LEAST_RESIZES = 400;

/** One ResizePod, in microseconds. `begin` is the machine's clock. */
interface Resized {
  readonly direction: Aim['direction'];
  readonly begin: number;
  readonly took: number;
  /** The part that the backend itself used, without transfers. */
  readonly served: number;
}

/** Values between which the pod is resized, and the call that requests them. */
interface Aim {
  /** The direction of all limits. To lower them, the shim reads and holds the usage and writes the journal. */
  readonly direction: 'raising' | 'lowering';
  readonly amounts: readonly Amounts[];
  readonly call: Call;
}

/**
 * Measures ResizePod of a pod with three containers by the shipped shim in front of a fake runtime with a fake cgroup
 * tree, and with its journal on a disk. Everything except calls of the backend counts as our own time: the minimal
 * client, the transfers, and waiting for the disk. A call of the backend lasts from its request to its answer; building
 * the request and reading the answer count as ours. The stricter figure counts only the time in the backend process as
 * the backend's: what a shim without any cost would save.
 */
export async function measureResizes({ children, seconds, profile }: WorkOptions): Promise<WorkResult[]> {
  const fake = await startFakePods(children, 'fake-resized', { pods: 1, containers: CONTAINERS });
  const noted = children.path('noted.json');
  // Every node has this folder. Without it, the shim would watch the parent folder, to which this bench writes.
  mkdirSync(children.path('kubelet'), { recursive: true });
  const shim = await startShim(
    children,
    'shim-resized',
    { ...fake, profile, stateFolder: `${children.folderOnDisk()}/state` },
    { CRI_BENCH_NOTES: noted, CRI_BENCH_BACKEND: fake.backend },
  );
  await knows(shim);
  const { resizes, cpuUs } = await shim.child.until(resizeAgain(fake, shim, seconds));
  await shim.child.stop();
  await fake.stop();
  const { fsyncs, backend } = JSON.parse(readFileSync(noted, 'utf8')) as Notes;
  const ms = (of: (resized: Resized) => number, some: readonly Resized[] = resizes): number[] =>
    some.map((resized) => of(resized) / 1000);
  const within =
    (spans: readonly Span[]) =>
    ({ begin, took }: Resized): number =>
      timeIn(spans, begin, begin + took);
  if (backend.length < resizes.length) throw new Error('the calls of the backend were not recorded');
  const own = (resized: Resized): number => resized.took - within(backend)(resized);
  const those = (direction: Aim['direction']): Resized[] =>
    resizes.filter((resized) => resized.direction === direction);
  return [
    resultOf('ResizePod of 3 containers', 'ms', ms(own)),
    resultOf('  raising all limits', 'ms', ms(own, those('raising'))),
    resultOf('  lowering all limits', 'ms', ms(own, those('lowering'))),
    resultOf('  of all, in fsync', 'ms', ms(within(fsyncs))),
    {
      work: 'ResizePod of 3 containers, CPU time',
      unit: 'ms',
      p50: rounded(cpuUs / 1000, 3),
      samples: resizes.length,
    },
    resultOf('  in calls of the backend', 'ms', ms(within(backend))),
    resultOf(
      '  all except the time in the backend',
      'ms',
      ms(({ took, served }) => took - served),
    ),
  ];
}

/** Waits until the shim has listed the backend's pods. */
async function knows({ child }: Shim): Promise<void> {
  const log = new LogReader(child.logFile);
  await child.until(log.line('registry compared with the backend'));
  log.close();
}

/** Repeats the resizes. `cpuUs`: CPU time of all threads of the shim for one resize. */
async function resizeAgain(
  fake: FakePods,
  { child, resizeSocket }: Shim,
  seconds: number,
): Promise<{ readonly resizes: readonly Resized[]; readonly cpuUs: number }> {
  const [pod] = fake.pods;
  if (pod === undefined) throw new Error('the fake node has no pod');
  const aims = [aimOf(pod, 'raising', 64, 50), aimOf(pod, 'lowering', 0, 0)];
  const connection = await Connection.open(resizeSocket);
  const resizes: Resized[] = [];
  const resizeAll = async (): Promise<void> => {
    for (const aim of aims) {
      resizes.push(await resizeOnce(fake, connection, aim));
      assertFiles(fake.cgroupRoot, pod, aim.amounts);
    }
  };
  while (resizes.length < WARM_UP_RESIZES) await resizeAll();
  resizes.length = 0;
  const begin = performance.now();
  const cpuBefore = cpuMicroseconds(child.pid);
  while (resizes.length < LEAST_RESIZES || performance.now() < begin + seconds * 1000) await resizeAll();
  connection.close();
  return { resizes, cpuUs: (cpuMicroseconds(child.pid) - cpuBefore) / resizes.length };
}

function aimOf(pod: FakePod, direction: Aim['direction'], moreMi: number, moreMilli: number): Aim {
  const amounts = pod.containers.map((_, index) => {
    const { memoryMi, milliCpu } = amountsAtStart(index);
    return { memoryMi: memoryMi + moreMi, milliCpu: milliCpu + moreMilli };
  });
  return { direction, amounts, call: resizePodCall(pod, amounts) };
}

async function resizeOnce(fake: FakePods, connection: Connection, { call, direction }: Aim): Promise<Resized> {
  const before = await fake.backendTime();
  const begin = Number(process.hrtime.bigint()) / 1000;
  const response = await connection.call(call);
  const took = Number(process.hrtime.bigint()) / 1000 - begin;
  const state = stateOf(response);
  if (state !== 'COMPLETED') throw new Error(`a resize is ${state}`);
  return { direction, begin, took, served: (await fake.backendTime()) - before };
}
