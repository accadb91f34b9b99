import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { prepareNode } from '../test/node/index.ts';
import { Children } from './children.ts';
import { startEmpty, startFull } from './containerd/containerd.ts';
import { writeCgroups } from './containerd/files.ts';
import { type Measurement, type Resources, type Ways, compareAnswers, measure } from './measure.ts';
import { type BackendName, type Operation, operations } from './operations.ts';
import { peakRssMB } from './process-use.ts';
import { allBarsMet, table } from './report.ts';
import { openBoth, startShim, startTime } from './shim.ts';
import { rounded } from './statistics.ts';

/**
 * npm run bench: each call direct and through the shim, in one run, on this machine. Ratios hold on any machine; times
 * are this one's. Nothing here fails by being slow unless `--check` asks for it.
 */

interface Flags {
  readonly json?: true;
  readonly check?: true;
  readonly seconds: number;
  readonly only?: string;
}

const IN_FLIGHT = [1, 16] as const;

const say = (text: string): void => void process.stderr.write(`bench: ${text}\n`);

function seconds(text: string): number {
  const value = Number(text);
  if (!(value > 0)) throw new InvalidArgumentError('write a number of seconds');
  return value;
}

async function main(): Promise<number> {
  const flags = new Command('bench')
    .description('Measures calls direct and through the shim, in turn, in one run.')
    .option('--json', 'print an array of results')
    .option('--check', 'exit with 1 when a bar is not met')
    .option('--seconds <number>', 'for each call and number in flight, both sides together', seconds, 6)
    .option('--only <op>', 'only calls whose name begins with this')
    .parse()
    .opts<Flags>();
  const chosen = operations.filter(({ name }) => name.toLowerCase().startsWith((flags.only ?? '').toLowerCase()));
  if (chosen.length === 0) throw new Error(`--only: one of ${operations.map(({ name }) => name).join(', ')}`);
  const { measurements, resources } = await run(flags, chosen);
  const text = flags.json
    ? `${JSON.stringify([...measurements, resources], null, 2)}\n`
    : table(measurements, resources);
  process.stdout.write(text);
  return flags.check && !allBarsMet(measurements, resources) ? 1 : 0;
}

async function run(
  flags: Flags,
  chosen: readonly Operation[],
): Promise<{ measurements: Measurement[]; resources: Resources }> {
  const children = new Children();
  const { programs, containerdVersion } = await prepareNode({ containerd: '2.1', runtime: 'runc' }, say);
  const program = join(programs[0] ?? '', 'containerd');
  say(`containerd ${containerdVersion}, Node ${process.version}`);
  const cgroupRoot = children.path('cgroup');
  await writeCgroups(cgroupRoot);
  await mkdir(children.path('kubelet'));
  const needed = new Set(chosen.map(({ backend }) => backend));
  const sockets: Record<BackendName, string> = {
    empty: (await startEmpty(children, program, 'empty')).socket,
    full: needed.has('full') ? (await startFull(children, program, 'full')).socket : '',
  };

  const startMs = await startTime(children, sockets.empty, cgroupRoot);
  say(`first answer ${startMs} ms after the start`);

  const ways = new Map<BackendName, Ways>();
  for (const name of needed) {
    const shim = await startShim(children, `shim-of-${name}`, sockets[name], cgroupRoot);
    ways.set(name, { ...(await openBoth(sockets[name], shim)), shimPid: shim.child.pid });
  }
  const measurements: Measurement[] = [];
  for (const operation of chosen) {
    const way = ways.get(operation.backend);
    if (way === undefined) continue;
    await compareAnswers(operation, way);
    for (const inFlight of IN_FLIGHT) {
      say(`${operation.name}, ${inFlight} in flight ...`);
      measurements.push(await measure(operation, inFlight, flags.seconds, way));
    }
  }
  const rssMB = rounded(Math.max(...[...ways.values()].map(({ shimPid }) => peakRssMB(shimPid))), 1);
  return { measurements, resources: { rssMB, startMs } };
}

try {
  // Whatever still runs is ended by the exit (children.ts).
  process.exit(await main());
} catch (error) {
  say(error instanceof Error ? error.message : String(error));
  process.exit(1);
}
