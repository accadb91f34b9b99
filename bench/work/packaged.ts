import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { configurationExample } from '../../src/core/config/documentation.ts';
import { NotifySocket } from '../../test/support/daemon/fake-systemd.ts';
import { prepareNode } from '../../test/support/node/index.ts';
import { builtFile } from '../built-file.ts';
import type { Children } from '../children.ts';
import { startEmpty } from '../containerd/containerd.ts';
import { writeCgroups } from '../containerd/files.ts';
import { version } from '../operations.ts';
import { cpuMicroseconds } from '../process-use.ts';
import { type Shim, type ShimPlaces, spawnShim } from '../shim.ts';
import { connectWhenThere } from '../sockets.ts';
import { median } from '../statistics.ts';
import type { WorkOptions } from './options.ts';
import { part, resultOf, type WorkResult } from './result.ts';

/** Enough for a 99th percentile. */
const STARTS = 100;
const NODE = `Node ${process.versions.node}`;

/** How the daemon is started. */
export interface Started {
  readonly places: ShimPlaces & { readonly packaged: string };
  readonly environment: Readonly<Record<string, string>>;
}

/**
 * Measures the time from the start of the process to its first answer. Each start is followed by a start of the same
 * Node with almost no program, which is the minimum for any program.
 */
export async function measurePackagedStart(options: WorkOptions): Promise<WorkResult[]> {
  return whereInstalled('packaged-start', options, (...given) => measureStarts(options.children, ...given));
}

/**
 * Runs a measurement with the folder of `npm run package`, started as its unit starts it: with the unit's environment,
 * the installed configuration, a systemd that receives notifications, and a containerd.
 */
export async function whereInstalled(
  name: string,
  { children, progress }: WorkOptions,
  measure: (started: Started, systemd: NotifySocket) => Promise<WorkResult[]>,
): Promise<WorkResult[]> {
  const { programs } = await prepareNode({ containerd: '2.1', runtime: 'runc' }, progress);
  const containerd = await startEmpty(children, join(programs[0] ?? '', 'containerd'), `${name}-containerd`);
  const systemd = new NotifySocket(children.path(`${name}-notify`), 'on drain');
  const packaged = children.path(name);
  const packing = children.spawn('package', process.execPath, [
    ...[builtFile('tools/package.js'), '--only', 'tree', '--to', packaged],
  ]);
  await packing.exited;
  if (packing.process.exitCode !== 0) throw new Error(`the package could not be built:\n${packing.lastOutput()}`);
  const cgroupRoot = children.path(`${name}-cgroup`);
  await writeCgroups(cgroupRoot);
  mkdirSync(children.path('kubelet'), { recursive: true });
  const configuration = children.path(`${name}-config.yaml`);
  writeFileSync(configuration, configurationExample({ isCommentedOut: true }));
  const results = await measure(
    {
      places: { backend: containerd.socket, cgroupRoot, packaged, flags: ['--config', configuration] },
      // Matches Type=notify and WatchdogSec=60s of the unit.
      environment: { NOTIFY_SOCKET: systemd.name, WATCHDOG_USEC: '60000000' },
    },
    systemd,
  );
  await systemd.close();
  await containerd.child.stop();
  return results;
}

async function measureStarts(
  children: Children,
  { places, environment }: Started,
  systemd: NotifySocket,
): Promise<WorkResult[]> {
  const [times, cpu, bareTimes, bareCpu]: [number[], number[], number[], number[]] = [[], [], [], []];
  for (let index = 0; index < STARTS; index += 1) {
    const begin = performance.now();
    const shim = spawnShim(children, `packaged-${index}`, places, environment);
    await answer(shim, 1);
    times.push(performance.now() - begin);
    cpu.push(cpuMicroseconds(shim.child.pid) / 1000);
    await shim.child.stop();
    systemd.drain();
    const bare = await startBare(children, `bare-${index}`);
    bareTimes.push(bare.milliseconds);
    bareCpu.push(bare.cpuMilliseconds);
  }
  return [
    { ...resultOf('Packaged daemon, first answer', 'ms', times), on: NODE },
    part('  as a multiple of bare Node', 'times', median(times) / median(bareTimes), STARTS),
    part('  CPU time until then, mean', 'ms', mean(cpu), STARTS),
    part('  of bare Node, mean', 'ms', mean(bareCpu), STARTS),
  ];
}

/** Starts a Node that only prints its CPU time. Returns the durations from its start to its end. */
async function startBare(
  children: Children,
  name: string,
): Promise<{ readonly milliseconds: number; readonly cpuMilliseconds: number }> {
  const begin = performance.now();
  const program = 'const { user, system } = process.cpuUsage(); process.stdout.write(String((user + system) / 1000))';
  const child = children.spawn(name, process.execPath, ['-e', program]);
  const { stdout } = child.process;
  if (stdout === null) throw new Error('Node has no stdout');
  const cpuMilliseconds = Number(await text(stdout));
  await child.exited;
  return { milliseconds: performance.now() - begin, cpuMilliseconds };
}

/** Resolves when the shim has answered this many calls. */
export async function answer({ child, socket }: Shim, calls: number): Promise<void> {
  const connection = await child.until(connectWhenThere(socket));
  for (let call = 0; call < calls; call += 1) await child.until(connection.call(version));
  connection.close();
}

const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
