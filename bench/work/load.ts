import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { runInNode } from '../../test/support/node/index.ts';
import { builtFile, repositoryFile } from '../built-file.ts';
import { type Comparison, type CpuTime, compare, cpuShare, type Latency } from '../load/comparison.ts';
import { RECORDING } from '../load/file.ts';
import { CPU_FILE } from '../load/inside.ts';
import { type About, type Recording, readRecording } from '../load/recording.ts';
import { playRounds } from '../load/rounds.ts';
import type { WorkOptions } from './options.ts';
import { part, type WorkResult } from './result.ts';

const SPEED = 20;
/** An odd number, so that the median is one of the measurements. */
const ROUNDS = 5;
/** Rounds in the node, which only measure CPU time. */
const ROUNDS_IN_NODE = 2;
const LIMIT_MS = 10 * 60_000;

/**
 * Plays the recorded calls of a real kubelet 20 times as fast, directly and through the shim, and reports the time that
 * the shim adds to each call. Also plays them in the test node, to compare the shim's CPU time with containerd's.
 */
export async function measureLoad({ children, profile, progress }: WorkOptions): Promise<WorkResult[]> {
  const file = repositoryFile(RECORDING, 'npm run nightly -- --only record-load');
  const recording = readRecording(file);
  progress(summary(recording));
  const here = await playRounds({ children, file, recording, rounds: ROUNDS, speed: SPEED, profile });
  const compared = compare(here.direct, here.shim);
  const { path, atMs } = recording.calls[compared.slowest]!;
  progress(`the shim adds the most to ${path} at ${(atMs / 1000).toFixed(1)} s of the recording`);
  const cpu = await cpuInNode(file, progress);
  return resultsOf(recording, compared, cpu, here.cpu);
}

function summary({ about, calls }: Recording): string {
  const { kubelet, containerd, pods, containers, seconds, date } = about;
  return `${calls.length} calls of kubelet ${kubelet} to containerd ${containerd} in ${seconds} s, with ${pods} pods of ${containers} containers (${date})`;
}

async function cpuInNode(file: string, progress: (text: string) => void): Promise<CpuTime> {
  const output = new PassThrough();
  const printed = text(output);
  const { exitCode, outDir } = await runInNode({
    containerd: '2.1',
    runtime: 'runc',
    startContainerd: false,
    command: [process.execPath, builtFile('tools/bench-load-inside.js'), file, `${ROUNDS_IN_NODE}`, `${SPEED}`],
    stdio: { stdout: output, stderr: output },
    timeoutMs: LIMIT_MS,
    progress,
  });
  output.end();
  if (exitCode !== 0) throw new Error(`the run in the node ended with ${exitCode}; see ${outDir}:\n${await printed}`);
  const cpu = JSON.parse(await readFile(join(outDir, CPU_FILE), 'utf8')) as CpuTime;
  await rm(outDir, { recursive: true, force: true });
  return cpu;
}

const containerdCpu = ({ containerdCpuMs, yardstickMs }: About): CpuTime => ({ cpuMs: containerdCpuMs, yardstickMs });

function resultsOf({ about, calls }: Recording, compared: Comparison, cpu: CpuTime, here: CpuTime): WorkResult[] {
  const all = calls.length;
  const ms = (name: string, us: number): WorkResult => part(name, 'ms', us / 1000, all);
  const latency = (side: string, { p50, p99, most }: Latency): WorkResult[] => [
    ms(`  median, ${side}`, p50),
    ms(`  p99, ${side}`, p99),
    ms(`  slowest of all replays, ${side}`, most),
  ];
  return [
    part('Real load: CPU time of the shim', 'times', cpuShare(cpu, containerdCpu(about)), ROUNDS_IN_NODE),
    part('  CPU time of containerd, for the recorded calls', 'ms', about.containerdCpuMs, 1),
    part('  yardstick of the recording', 'ms', about.yardstickMs, 1),
    part('  CPU time of the shim in the node, for the same calls', 'ms', cpu.cpuMs, ROUNDS_IN_NODE),
    part('  yardstick in the node', 'ms', cpu.yardstickMs, ROUNDS_IN_NODE),
    part('  CPU time of the shim on this machine, for the same calls', 'ms', here.cpuMs, ROUNDS),
    ms('Real load: p99 added', compared.addedP99),
    ms('Real load: slowest call added', compared.addedMost),
    ms('  median added', compared.addedP50),
    ...latency('directly', compared.direct),
    ...latency('through the shim', compared.shim),
  ];
}
