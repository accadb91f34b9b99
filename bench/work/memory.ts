import { execFileSync } from 'node:child_process';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { builtFile } from '../built-file.ts';
import { load } from '../calls/load.ts';
import { startPeer, startRelay } from '../calls/sides.ts';
import type { Child, Children } from '../children.ts';
import { Connection } from '../client/connection.ts';
import { loadByGo } from '../client/go.ts';
import { amountsAtStart } from '../fake/pods.ts';
import { type FakePods, startFakePods } from '../fake/start.ts';
import type { GoPrograms } from '../go/programs.ts';
import { LogReader } from '../log-reader.ts';
import { runtimeCall, version } from '../operations.ts';
import { type Resident, residentMB } from '../process-use.ts';
import { bytes } from '../protobuf.ts';
import { type Shim, spawnShim } from '../shim.ts';
import { connectWhenThere } from '../sockets.ts';
import { median } from '../statistics.ts';
import type { WorkOptions } from './options.ts';
import { type Started, whereInstalled } from './packaged.ts';
import { resizePodCall, stateOf } from './resize-api.ts';
import { part, type WorkResult } from './result.ts';

const DAEMONS = 3;
const NODE = { pods: 20, containers: 2 };
/** After this time, the memory of the start has been released: resizes come at any time later. */
const STARTED_MS = 20_000;
/** Time between the last call and the measurement. */
const IDLE_MS = 60_000;
const IN_FLIGHT = 16;
const SAMPLE_MS = 50;

/** Processes of one kind. */
interface Measured {
  readonly name: string;
  readonly processes: readonly { readonly child: Child; readonly socket: string }[];
}

/**
 * Measures the memory of the packaged daemon, the single executable, the byte relay and the typed proxy: when they have
 * been idle for a minute after a client has connected and, of the shims, each pod has been resized twice; then under
 * load. Also measures Node without a program.
 */
export async function measureMemory(options: WorkOptions): Promise<WorkResult[]> {
  const fake = await startFakePods(options.children, 'fake-memory', NODE);
  const results = await whereInstalled('packaged-idle', options, ({ places, environment }) =>
    measureAll(options, fake, {
      places: { ...places, backend: fake.backend, cgroupRoot: fake.cgroupRoot },
      environment,
    }),
  );
  await fake.stop();
  return results;
}

async function measureAll(options: WorkOptions, fake: FakePods, started: Started): Promise<WorkResult[]> {
  const { children, programs } = options;
  const { backend } = fake;
  const executable = await obtainExecutable(children);
  const measured: Measured[] = [
    { name: 'Packaged daemon', processes: await startDaemons(children, 'idle', fake, started) },
    ...(executable === undefined
      ? []
      : [{ name: 'Single executable', processes: await startDaemons(children, 'sea', fake, started, executable) }]),
    { name: 'Byte relay', processes: [await startRelay(children, 'idle', backend)] },
    ...(programs === undefined
      ? []
      : [{ name: 'Typed proxy', processes: [await startPeer(children, 'idle', backend, programs)] }]),
  ];
  const bare = children.spawn('idle-bare', process.execPath, ['-e', 'setInterval(() => undefined, 1_000_000)']);
  await bare.until(delay(IDLE_MS));
  const ofBare = residentMB(bare.pid);
  await bare.stop();
  const idle = measured.map(({ processes }) => processes.map(({ child }) => residentMB(child.pid)));
  const results: WorkResult[] = [];
  for (const [index, { name, processes }] of measured.entries()) {
    const loaded: Resident[] = [];
    for (const one of processes) loaded.push(await underLoad(one, options));
    results.push(
      ...rowsOf(name, 'when idle', idle[index] ?? []),
      ...rowsOf(name, 'under load', loaded),
      part(`  ${name}, pages of files when idle`, 'MB', medianOf(idle[index] ?? [], 'ofFiles'), processes.length),
    );
    await Promise.all(processes.map(({ child }) => child.stop()));
  }
  return [...results, ...rowsOf('Bare Node', 'when idle', [ofBare])];
}

const medianOf = (all: readonly Resident[], of: keyof Resident): number => median(all.map((one) => one[of]));

const rowsOf = (name: string, when: string, found: readonly Resident[]): WorkResult[] => [
  part(`${name}, memory ${when}`, 'MB', medianOf(found, 'all'), found.length),
  part(`${name}, anonymous memory ${when}`, 'MB', medianOf(found, 'anonymous'), found.length),
];

async function startDaemons(
  children: Children,
  name: string,
  fake: FakePods,
  { places, environment }: Started,
  executable?: string,
): Promise<Measured['processes']> {
  // As after a start of the machine: the pages of a file that has just been written are all in memory, and the kernel
  // maps them along with the pages that the process uses.
  if (executable !== undefined) {
    execFileSync('sync', [executable]);
    execFileSync('dd', [`if=${executable}`, 'iflag=nocache', 'count=0', 'status=none']);
  }
  const own = executable === undefined ? places : { ...places, executable };
  const processes: Shim[] = [];
  for (let index = 0; index < DAEMONS; index += 1) {
    const shim = spawnShim(children, `${name}-${index}`, own, environment);
    processes.push(shim);
  }
  await Promise.all(processes.map(({ child }) => child.until(delay(STARTED_MS))));
  for (const shim of processes) await use(shim, fake);
  return processes;
}

/** Connects as kubelet does, asks for all containers, and resizes each pod up and down. The connection stays open. */
async function use({ child, socket, resizeSocket }: Shim, { pods }: FakePods): Promise<void> {
  const kubelet = await child.until(connectWhenThere(socket));
  await child.until(kubelet.call(version));
  const log = new LogReader(child.logFile);
  await child.until(log.line('registry compared with the backend'));
  log.close();
  for (const { id } of pods.flatMap(({ containers }) => containers))
    await child.until(kubelet.call(runtimeCall('ContainerStatus', bytes(1, id))));
  const agent = await child.until(Connection.open(resizeSocket));
  for (const more of [64, 0])
    for (const pod of pods) {
      const amounts = pod.containers.map((_, index) => {
        const { memoryMi, milliCpu } = amountsAtStart(index);
        return { memoryMi: memoryMi + more, milliCpu };
      });
      const state = stateOf(await child.until(agent.call(resizePodCall(pod, amounts))));
      if (state !== 'COMPLETED') throw new Error(`a resize is ${state}`);
    }
  agent.close();
}

/** Builds the single executable unless it is up to date. Undefined if npm has no Node for the architecture. */
async function obtainExecutable(children: Children): Promise<string | undefined> {
  const packing = children.spawn('package-executable', process.execPath, [
    ...[builtFile('tools/package.js'), '--only', 'executable'],
  ]);
  const { stdout } = packing.process;
  if (stdout === null) throw new Error('the packaging has no stdout');
  const made = await text(stdout);
  await packing.exited;
  if (packing.process.exitCode !== 0)
    throw new Error(`the single executable could not be built:\n${packing.lastOutput()}`);
  return made.split('\n').find((file) => file.endsWith('-executable'));
}

/** Polls the memory of the process while calls are made. Returns the maximum. */
async function underLoad(
  { child, socket }: Measured['processes'][number],
  { children, programs, seconds }: WorkOptions,
): Promise<Resident> {
  let most = residentMB(child.pid);
  const look = setInterval(() => {
    const now = residentMB(child.pid);
    most = {
      all: Math.max(most.all, now.all),
      anonymous: Math.max(most.anonymous, now.anonymous),
      ofFiles: Math.max(most.ofFiles, now.ofFiles),
    };
  }, SAMPLE_MS);
  try {
    await child.until(callAgain(children, programs, socket, seconds));
  } finally {
    clearInterval(look);
  }
  return most;
}

async function callAgain(
  children: Children,
  programs: GoPrograms | undefined,
  socket: string,
  seconds: number,
): Promise<void> {
  const options = { call: version, inFlight: IN_FLIGHT, seconds };
  if (programs !== undefined) {
    await loadByGo(children, programs, [{ name: 'shim', socket, child: undefined }], options);
    return;
  }
  const client = await Connection.open(socket);
  await load([{ name: 'shim', client }], options);
  client.close();
}
