import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import { builtFile } from '../built-file.ts';
import { load } from '../calls/load.ts';
import { startPeer, startRelay } from '../calls/sides.ts';
import type { Child, Children } from '../children.ts';
import { Connection } from '../client/connection.ts';
import { loadByGo } from '../client/go.ts';
import type { GoPrograms } from '../go/programs.ts';
import { version } from '../operations.ts';
import { type Resident, residentMB } from '../process-use.ts';
import { spawnShim } from '../shim.ts';
import { median } from '../statistics.ts';
import type { WorkOptions } from './options.ts';
import { answer, type Started, whereInstalled } from './packaged.ts';
import { part, type WorkResult } from './result.ts';

const DAEMONS = 3;
/** Number of calls that kubelet makes first. */
const CALLS = 5;
/** V8 waits for 8 s without work, and once more after a collection, before it returns memory. */
const IDLE_MS = 20_000;
const IN_FLIGHT = 16;
const SAMPLE_MS = 50;

/** Processes of one kind. */
interface Measured {
  readonly name: string;
  readonly processes: readonly { readonly child: Child; readonly socket: string }[];
}

/**
 * Measures the memory of the packaged daemon, the single executable, the byte relay and the typed proxy, first when
 * they have been idle for a while and then under load. Also measures Node without a program.
 */
export async function measureMemory(options: WorkOptions): Promise<WorkResult[]> {
  return whereInstalled('packaged-idle', options, (started) => measureAll(options, started));
}

async function measureAll(options: WorkOptions, started: Started): Promise<WorkResult[]> {
  const { children, programs } = options;
  const { backend } = started.places;
  const executable = await obtainExecutable(children);
  const measured: Measured[] = [
    { name: 'Packaged daemon', processes: await startDaemons(children, 'idle', started) },
    ...(executable === undefined
      ? []
      : [{ name: 'Single executable', processes: await startDaemons(children, 'sea', started, executable) }]),
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
  { places, environment }: Started,
  executable?: string,
): Promise<Measured['processes']> {
  const own = executable === undefined ? places : { ...places, executable };
  const processes: { readonly child: Child; readonly socket: string }[] = [];
  for (let index = 0; index < DAEMONS; index += 1) {
    const shim = spawnShim(children, `${name}-${index}`, own, environment);
    await answer(shim, CALLS);
    processes.push(shim);
  }
  return processes;
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
