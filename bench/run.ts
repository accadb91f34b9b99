import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { prepareNode } from '../test/support/node/index.ts';
import { Children } from './children.ts';
import { startFake } from './fake/start.ts';
import { startEmpty, startFull } from './containerd/containerd.ts';
import { writeCgroups } from './containerd/files.ts';
import { type Measurement, type Resources, type Way, compareAnswers, measure } from './measure.ts';
import type { BackendName, Operation } from './operations.ts';
import { peakRssMB } from './process-use.ts';
import { openWay, startTime } from './shim.ts';
import { rounded } from './statistics.ts';
import type { Work, WorkResult } from './work/index.ts';

export interface RunOptions {
  readonly operations: readonly Operation[];
  readonly works: readonly Work[];
  /** For each work, and for each call and number in flight, both sides together. */
  readonly seconds: number;
  /** The folder for CPU profiles of the measured shims, if requested. */
  readonly profile?: string | undefined;
  readonly progress: (text: string) => void;
}

export interface Results {
  readonly measurements: readonly Measurement[];
  /** Undefined if no call was measured, because it is measured under their load. */
  readonly resources: Resources | undefined;
  readonly workResults: readonly WorkResult[];
}

const IN_FLIGHT = [1, 16] as const;

/** Starts everything, measures, and stops the shims. Other processes end with this one. */
export async function run({ operations, works, ...options }: RunOptions): Promise<Results> {
  const children = new Children();
  const ofCalls = operations.length === 0 ? noCalls : await measureCalls(children, operations, options);
  const workResults: WorkResult[] = [];
  for (const { name, measure: measureWork } of works) {
    options.progress(`${name} ...`);
    workResults.push(...(await measureWork({ children, ...options })));
  }
  return { ...ofCalls, workResults };
}

type CallResults = Pick<Results, 'measurements' | 'resources'>;

const noCalls: CallResults = { measurements: [], resources: undefined };

async function measureCalls(
  children: Children,
  operations: readonly Operation[],
  { seconds, profile, progress }: Omit<RunOptions, 'operations' | 'works'>,
): Promise<CallResults> {
  const sockets = await startBackends(children, new Set(operations.map(({ backend }) => backend)), progress);
  const cgroupRoot = children.path('cgroup');
  await writeCgroups(cgroupRoot);
  await mkdir(children.path('kubelet'));

  const [[, backend] = ['', '']] = sockets;
  const startMs = await startTime(children, { backend, cgroupRoot });
  progress(`first answer ${startMs} ms after the start`);

  const ways = new Map<BackendName, Way>();
  for (const [name, socket] of sockets) {
    ways.set(name, await openWay(children, `shim-${name}`, { backend: socket, cgroupRoot, profile }));
  }
  const measurements: Measurement[] = [];
  const rssMB = (): number => rounded(Math.max(...[...ways.values()].map((way) => peakRssMB(way.process.pid))), 1);
  let underLoad: number | undefined;
  for (const operation of operations) {
    if (operation.forInformation) underLoad ??= rssMB();
    const way = ways.get(operation.backend);
    if (way === undefined) throw new Error(`no backend for ${operation.name}`);
    await way.process.until(compareAnswers(operation, way));
    for (const inFlight of IN_FLIGHT) {
      progress(`${operation.name}, ${inFlight} in flight ...`);
      measurements.push(await way.process.until(measure(operation, inFlight, seconds, way)));
    }
  }
  const atEnd = rssMB();
  for (const way of ways.values()) {
    for (const { direct, shim } of Object.values(way.clients)) {
      direct.close();
      shim.close();
    }
    await way.process.stop();
  }
  return { measurements, resources: { rssMB: underLoad ?? atEnd, startMs, rssAtEndMB: atEnd } };
}

/** Starts the containerds that are needed. Returns their sockets. */
async function startBackends(
  children: Children,
  needed: ReadonlySet<BackendName>,
  progress: (text: string) => void,
): Promise<Map<BackendName, string>> {
  const { programs, containerdVersion } = await prepareNode({ containerd: '2.1', runtime: 'runc' }, progress);
  const program = join(programs[0] ?? '', 'containerd');
  progress(`containerd ${containerdVersion}, Node ${process.version}`);
  const sockets = new Map<BackendName, string>();
  if (needed.has('empty')) sockets.set('empty', (await startEmpty(children, program, 'empty')).socket);
  if (needed.has('full')) sockets.set('full', (await startFull(children, program, 'full')).socket);
  if (needed.has('fake')) sockets.set('fake', await startFake(children));
  return sockets;
}
