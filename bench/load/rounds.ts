import { mkdirSync, writeFileSync } from 'node:fs';
import { createConnection } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { builtFile } from '../built-file.ts';
import type { Child, Children } from '../children.ts';
import { LogReader } from '../log-reader.ts';
import { cpuMicroseconds } from '../process-use.ts';
import { type Shim, startShim } from '../shim.ts';
import { connectWhenThere } from '../sockets.ts';
import type { CpuTime } from './comparison.ts';
import type { CgroupFile, Recording } from './recording.ts';
import { openPlayer, type Player } from './replay.ts';
import { Yardstick } from './yardstick.ts';

export interface RoundsOptions {
  readonly children: Children;
  /** The file of the recording. */
  readonly file: string;
  readonly recording: Recording;
  /** Replays of each side that are measured. One before them compiles the code. */
  readonly rounds: number;
  readonly speed: number;
  /** The folder for a CPU profile of the shim, if requested. */
  readonly profile?: string | undefined;
}

export interface Rounds {
  /** Durations of the calls of each replay, in microseconds. */
  readonly direct: readonly Float64Array[];
  readonly shim: readonly Float64Array[];
  /** CPU time of the shim, for one replay. */
  readonly cpu: CpuTime;
}

interface Side {
  readonly player: Player;
  readonly replays: Float64Array[];
}

/** Number of yardstick measurements between two replays. */
const YARDSTICK_TIMES = 20;

/** Plays a recording directly and through the shim, in turn. Rejects if an answer is not the recorded one. */
export async function playRounds(options: RoundsOptions): Promise<Rounds> {
  const { children, file, recording, profile } = options;
  const cgroupRoot = children.folderInMemory();
  writeCgroups(cgroupRoot, recording.cgroups);
  mkdirSync(children.path('kubelet'), { recursive: true });
  const backend = children.path('load-runtime.sock');
  const runtime = children.spawn('load-runtime', process.execPath, [
    builtFile('tools/bench-load-runtime.js'),
    backend,
    file,
  ]);
  (await runtime.until(connectWhenThere(backend))).close();
  const shim = await startShim(children, 'shim-load', { backend, cgroupRoot, profile });
  const log = new LogReader(shim.child.logFile);
  await shim.child.until(log.line('registry compared with the backend'));
  log.close();
  const rounds = await runtime.until(shim.child.until(measure(options, backend, shim)));
  await assertAllKnown(runtime, backend);
  await shim.child.stop();
  await runtime.stop();
  return rounds;
}

async function measure({ recording, rounds, speed }: RoundsOptions, backend: string, shim: Shim): Promise<Rounds> {
  const { calls } = recording;
  const direct: Side = { player: await openPlayer(backend, calls), replays: [] };
  const through: Side = { player: await openPlayer(shim.socket, calls), replays: [] };
  for (const { player } of [direct, through]) await player.play(speed);
  let cpuUs = 0;
  const yardstick = new Yardstick();
  for (let round = 0; round < rounds; round += 1)
    // The order alternates, because each side finds the machine as the previous one left it.
    for (const side of round % 2 === 0 ? [direct, through] : [through, direct]) {
      const before = cpuMicroseconds(shim.child.pid);
      side.replays.push(await side.player.play(speed));
      if (side === through) cpuUs += cpuMicroseconds(shim.child.pid) - before;
      // Between replays, so that it delays no call.
      for (let times = 0; times < YARDSTICK_TIMES; times += 1) yardstick.measure();
    }
  for (const { player } of [direct, through]) player.close();
  const cpu = { cpuMs: cpuUs / 1000 / rounds, yardstickMs: yardstick.result() };
  return { direct: direct.replays, shim: through.replays, cpu };
}

function writeCgroups(root: string, files: readonly CgroupFile[]): void {
  for (const folder of new Set(files.map(({ cgroup }) => cgroup))) mkdirSync(join(root, folder), { recursive: true });
  for (const { cgroup, name, content } of files) writeFileSync(join(root, cgroup, name), content);
}

async function assertAllKnown(runtime: Child, socket: string): Promise<void> {
  const unknown = await runtime.until(text(createConnection(`${socket}.unknown`)));
  if (unknown !== '') throw new Error(`the recording has no answer to these calls:\n${unknown}`);
}
