import { copyFile, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Command, InvalidArgumentError } from 'commander';
import { kubeletVersion, obtainKubernetes, usualKubernetes } from '../../test/real-kubelet/programs.ts';
import { LineFollower } from '../../test/runner/line-follower.ts';
import { endingSignal, progressOf } from '../../test/runner/vitest-run.ts';
import { NodeError, prepareNode, runInNode } from '../../test/support/node/index.ts';
import { packageRoot } from '../../tools/download/places.ts';
import { RECORDING } from '../load/file.ts';
import { FILE, type RecordOptions } from './options.ts';

/** `record-load`: records a real kubelet with many pods in a node, for `npm run bench -- --only load`. */

const say = progressOf('record-load');
const NODE = { containerd: '2.1', runtime: 'runc' } as const;
/** The API server, kubelet, and a runtime's shim for each pod. */
const MEMORY_BYTES = 6 * 2 ** 30;
/** Time that the node needs in addition to the recording, for example to create the pods. */
const OTHER_MS = 40 * 60_000;
/** The exit code of shells for a program that SIGINT ended. */
const INTERRUPTED = 130;

function number(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 0) throw new InvalidArgumentError('expected a whole number');
  return value;
}

interface Flags {
  readonly pods: number;
  readonly seconds: number;
  readonly probes: number;
  readonly probeSeconds: number;
  readonly output: string;
  readonly logs?: string;
}

const flags = new Command('record-load')
  .description('Records the CRI calls of a real kubelet with pods of two containers, in a test node.')
  .option('--pods <n>', 'number of pods', number, 110)
  .option('--seconds <n>', 'how long to record', number, 300)
  .option('--probes <n>', 'how many pods have a probe that runs a command', number, 110)
  .option('--probe-seconds <n>', 'time between two probes of a container', number, 60)
  .option('--output <file>', 'where to write the recording', join(packageRoot(), RECORDING))
  .option('--logs <folder>', 'where the logs of the node are left')
  .parse()
  .opts<Flags>();

async function main(): Promise<number> {
  const signal = endingSignal();
  const temporary = await mkdtemp(join(tmpdir(), 'cri-resize-shim-record-'));
  const outDir = flags.logs === undefined ? temporary : resolve(flags.logs);
  try {
    const kubernetes = await obtainKubernetes(usualKubernetes, say);
    const parts = await prepareNode(NODE, say);
    const { pods, seconds, probes, probeSeconds } = flags;
    const options: RecordOptions = {
      ...{ pods, seconds, probes, probeSeconds },
      // The node has a host name of its own.
      names: [packageRoot(), dirname(kubernetes.folder), temporary],
      date: new Date().toISOString().slice(0, 10),
      kubelet: kubeletVersion(usualKubernetes).slice(1),
      containerd: parts.containerdVersion,
      runtime: `runc ${parts.runtimeVersion}`,
      kernel: `User Mode Linux ${parts.kernel.version}, 1 processor`,
    };
    await mkdir(outDir, { recursive: true });
    await record(options, join(kubernetes.folder, 'bin'), outDir, signal);
    const output = resolve(flags.output);
    await mkdir(dirname(output), { recursive: true });
    await copyFile(join(outDir, FILE), output);
    say(`written to ${output}`);
    return 0;
  } catch (error) {
    if (signal.aborted) return INTERRUPTED;
    if (!(error instanceof NodeError)) throw error;
    say(error.message);
    return 70;
  } finally {
    await rm(temporary, { recursive: true, force: true });
  }
}

async function record(options: RecordOptions, programs: string, outDir: string, signal: AbortSignal): Promise<void> {
  const follower = new LineFollower(join(outDir, 'progress'), say);
  const program = join(dirname(fileURLToPath(import.meta.url)), 'record-load-inside.js');
  try {
    const { exitCode } = await runInNode({
      ...NODE,
      command: [process.execPath, program, JSON.stringify(options)],
      env: { KUBERNETES_PROGRAMS: programs },
      outDir,
      memoryBytes: MEMORY_BYTES,
      timeoutMs: options.seconds * 1000 + OTHER_MS,
      progress: say,
      signal,
    });
    if (exitCode !== 0) throw new NodeError(`the run in the node ended with ${exitCode}; see its logs with --logs`);
  } finally {
    follower.close();
  }
}

process.exitCode = await main();
