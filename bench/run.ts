import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { prepareNode } from '../test/support/node/index.ts';
import { compareAnswers, type Measurement, measure } from './calls/measure.ts';
import { closeWay, openWay, type Way } from './calls/sides.ts';
import { Children } from './children.ts';
import type { ClientKind } from './client/client.ts';
import { startEmpty, startFull } from './containerd/containerd.ts';
import { writeCgroups } from './containerd/files.ts';
import { startFake } from './fake/start.ts';
import { type GoPrograms, goClientName, obtainGoPrograms, typedProxyName } from './go/programs.ts';
import type { BackendName, Operation } from './operations.ts';
import type { Work, WorkResult } from './work/index.ts';

export interface RunOptions {
  readonly operations: readonly Operation[];
  readonly works: readonly Work[];
  /** For each work, and for each call, client and number in flight, all sides together. */
  readonly seconds: number;
  /** The folder for CPU profiles of the measured shims, if requested. */
  readonly profile?: string | undefined;
  readonly progress: (text: string) => void;
}

export interface Results {
  readonly measurements: readonly Measurement[];
  readonly workResults: readonly WorkResult[];
  /** The measured programs with their versions: `Node` and `26.10.0`. */
  readonly versions: Readonly<Record<string, string>>;
}

/** Starts everything, measures, and stops the shims. Other processes end with this one. */
export async function run({ operations, works, ...options }: RunOptions): Promise<Results> {
  const children = new Children();
  const programs = await obtainGoPrograms(options.progress);
  const { containerdVersion } = await prepareNode({ containerd: '2.1', runtime: 'runc' }, options.progress);
  const measurements = await measureCalls(children, operations, programs, options);
  const workResults: WorkResult[] = [];
  for (const { name, measure: measureWork } of works) {
    options.progress(`${name} ...`);
    workResults.push(...(await measureWork({ children, programs, ...options })));
  }
  const ofGo = programs === undefined ? {} : { client: goClientName, 'typed proxy': typedProxyName };
  return {
    measurements,
    workResults,
    versions: { Node: process.versions.node, containerd: containerdVersion, ...ofGo },
  };
}

async function measureCalls(
  children: Children,
  operations: readonly Operation[],
  programs: GoPrograms | undefined,
  { seconds, profile, progress }: Omit<RunOptions, 'operations' | 'works'>,
): Promise<Measurement[]> {
  const sockets = await startBackends(children, new Set(operations.map(({ backend }) => backend)), progress);
  const cgroupRoot = children.path('cgroup');
  await writeCgroups(cgroupRoot);
  await mkdir(children.path('kubelet'), { recursive: true });
  const ways = new Map<BackendName, Way>();
  for (const [name, backend] of sockets)
    ways.set(name, await openWay(children, name, { backend, cgroupRoot, profile }, programs));
  const measurements: Measurement[] = [];
  for (const operation of operations) {
    const way = ways.get(operation.backend);
    if (way === undefined) throw new Error(`no backend for ${operation.name}`);
    await way.shim.until(compareAnswers(operation, way));
    for (const client of clientsOf(operation, programs))
      for (const inFlight of operation.inFlight) {
        progress(`${operation.name}, ${client}, ${inFlight} in flight ...`);
        const options = { children, programs, seconds };
        measurements.push(await way.shim.until(measure(operation, client, inFlight, way, options)));
      }
  }
  for (const way of ways.values()) await closeWay(way);
  return measurements;
}

/** Without Go, the client of bare frames replaces kubelet's client. */
function clientsOf({ clients }: Operation, programs: GoPrograms | undefined): Set<ClientKind> {
  const ofKubelet = programs === undefined ? 'frames' : 'grpc-go';
  return new Set(clients.map((client) => (client === 'kubelet' ? ofKubelet : client)));
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
