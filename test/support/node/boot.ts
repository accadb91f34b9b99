import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { cp, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Duplex, Readable, Writable } from 'node:stream';
import { NodeError } from '../../../tools/download/errors.ts';
import { packageRoot } from '../../../tools/download/places.ts';
import type { Progress } from '../../../tools/download/progress.ts';
import { silent } from '../../../tools/download/progress.ts';
import { channels, type Kernel, kernelLog, kernelLogTail, kernelOf, killKernel } from './kernels/index.ts';
import type { NodeChoice } from './prepare.ts';
import { prepareNode, writeBootFiles } from './prepare.ts';

/** Source of the command's input and target of its output. `terminal` passes our own terminal, for shells. */
export type CommandStdio =
  | 'inherit'
  | 'terminal'
  | { readonly stdin?: Readable; readonly stdout?: Writable; readonly stderr?: Writable };

export interface RunOptions extends NodeChoice {
  readonly command: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** The working folder in the node. Default: the checkout. */
  readonly cwd?: string;
  /** `inherit` (the default) prints output to ours and provides no input. */
  readonly stdio?: CommandStdio;
  /** Time limit of the command, from its start. */
  readonly timeoutMs?: number;
  /**
   * The folder that is NODE_OUT in the node. Created if absent; default: a new temporary folder. The caller removes it.
   */
  readonly outDir?: string;
  /** Default: what the kernel's strategy says. */
  readonly memoryBytes?: number;
  /** False boots without containerd. `node-containerd start` starts it then. */
  readonly startContainerd?: boolean;
  readonly progress?: Progress;
  /** Stops the node immediately. */
  readonly signal?: AbortSignal;
}

export interface RunResult {
  /** The exit code of the command; 124 at its timeout, as with timeout(1). */
  readonly exitCode: number;
  readonly outDir: string;
  readonly timedOut: boolean;
}

const timedOutCode = 124;
const whileRunning = 'while the command ran';
/** A User Mode Linux that boots next to others on a busy machine sometimes dies before anything runs in it. */
const mostBoots = 3;

/**
 * Runs a command in a newly booted node. A node that ends before the command has started is booted again, with a
 * message.
 * @throws NodeError if the node fails, not the command
 */
export async function runInNode(options: RunOptions): Promise<RunResult> {
  const { progress = silent, signal } = options;
  const parts = await prepareNode(options, progress);
  signal?.throwIfAborted();
  const outDir = options.outDir ?? (await mkdtemp(join(tmpdir(), 'cri-resize-shim-out-')));
  await mkdir(outDir, { recursive: true });
  for (let boot = 1; ; boot += 1) {
    const { exitCode, timedOut, phase, logTail } = await bootAndRun(parts, options, outDir);
    if (exitCode !== undefined) return { exitCode: timedOut ? timedOutCode : exitCode, outDir, timedOut };
    signal?.throwIfAborted();
    const message = `the test node ended ${phase}; its log is ${join(outDir, 'kernel.log')} and ends:\n${logTail}`;
    if (phase === whileRunning || boot === mostBoots) throw new NodeError(message);
    progress(`${message}\nbooting it again`);
  }
}

async function bootAndRun(
  parts: Awaited<ReturnType<typeof prepareNode>>,
  options: RunOptions,
  outDir: string,
): Promise<KernelEnd & { readonly logTail: string }> {
  const folder = await mkdtemp(join(tmpdir(), 'cri-resize-shim-boot-'));
  const stdio = options.stdio ?? 'inherit';
  const terminal = stdio === 'terminal' ? openSync('/dev/tty', 'r+') : undefined;
  try {
    const stdin = typeof stdio === 'object' && stdio.stdin !== undefined;
    await writeBootFiles({
      parts,
      folder,
      outDir,
      command: options.command,
      cwd: options.cwd ?? packageRoot(),
      env: options.env ?? {},
      terminal: terminal !== undefined,
      stdin,
      containerd: options.startContainerd ?? true,
    });
    const kernel = kernelOf(parts);
    const { memoryBytes = kernel.memoryBytes } = options;
    const running = await kernel.start({ parts, folder, outDir, memoryBytes, terminal });
    const copied = typeof stdio === 'object' || stdio === 'inherit' ? copyStreams(running, stdio) : Promise.resolve();
    const end = await follow(running, kernel, options);
    await copied;
    if (end.exitCode !== undefined) return { ...end, logTail: '' };
    await cp(kernelLog(folder), join(outDir, 'kernel.log'));
    return { ...end, logTail: await kernelLogTail(folder) };
  } finally {
    if (terminal !== undefined) closeSync(terminal);
    await rm(folder, { recursive: true, force: true });
  }
}

interface KernelEnd {
  readonly exitCode: number | undefined;
  readonly timedOut: boolean;
  readonly phase: string;
}

/** Reads the messages of init.sh on the control console, and enforces the time limits, until the kernel has ended. */
async function follow(
  kernel: ChildProcess,
  { bootLimitMs, endLimitMs }: Kernel,
  options: RunOptions,
): Promise<KernelEnd> {
  const control = channel(kernel, channels.control);
  let exitCode: number | undefined;
  let phase = 'before its init ran';
  let timedOut = false;
  let limit = setTimeout(() => killKernel(kernel), bootLimitMs);
  const abort = (): void => killKernel(kernel);
  options.signal?.addEventListener('abort', abort);
  const { stdio } = options;
  const input = kernel.stdio[channels.stdin] as Duplex | null;
  input?.on('error', () => undefined);
  const giveInput = typeof stdio === 'object' && stdio.stdin && input ? inputSender(stdio.stdin, input) : undefined;
  // The kernel may end at any moment. Unread output is no error.
  control.on('error', () => undefined);
  createInterface({ input: control }).on('line', (line) => {
    const [word, value] = line.trim().split(' ');
    if (word === 'more') giveInput?.();
    if (word === 'booted') phase = 'before containerd was ready';
    if (word === 'ready') {
      phase = whileRunning;
      clearTimeout(limit);
      if (options.timeoutMs !== undefined) {
        limit = setTimeout(() => {
          timedOut = true;
          control.write('timeout\n');
          limit = setTimeout(() => killKernel(kernel), endLimitMs);
        }, options.timeoutMs);
      }
    }
    if (word === 'ending') {
      clearTimeout(limit);
      limit = setTimeout(() => killKernel(kernel), endLimitMs);
    }
    // Before the command runs, an exit code is init's own.
    if (word === 'exit' && phase === whileRunning) exitCode = Number(value);
  });
  try {
    await once(kernel, 'close');
    return { exitCode, timedOut, phase };
  } finally {
    clearTimeout(limit);
    options.signal?.removeEventListener('abort', abort);
    killKernel(kernel);
  }
}

function channel(kernel: ChildProcess, position: number): Duplex {
  const stream = kernel.stdio[position];
  if (!stream) throw new NodeError(`the kernel's channel ${position} is not open`);
  return stream as Duplex;
}

/** Resolves when all output has been copied. */
async function copyStreams(kernel: ChildProcess, stdio: Exclude<CommandStdio, 'terminal'>): Promise<void> {
  const inherited = stdio === 'inherit';
  const output = copy(channel(kernel, channels.stdout), inherited ? process.stdout : stdio.stdout);
  const errors = copy(channel(kernel, channels.stderr), inherited ? process.stderr : stdio.stderr);
  await Promise.all([output, errors]);
}

async function copy(from: Duplex, to: Writable | undefined): Promise<void> {
  from.on('error', () => undefined);
  if (to) from.pipe(to, { end: false });
  else from.resume();
  await once(from, 'close');
}

/** Sends the next piece of input each time that init.sh requests one. init.sh explains why. */
function inputSender(from: Readable, to: Writable): () => void {
  const pieces = piecesOf(from);
  return () => {
    pieces.next().then(
      ({ value, done }) => to.write(done === true ? '.\n' : `${value.toString('base64')}\n`),
      // Input that can no longer be read has ended.
      () => to.write('.\n'),
    );
  };
}

/** Pieces are short enough for one line of a console in base64. */
async function* piecesOf(from: Readable): AsyncGenerator<Buffer, void> {
  const length = 2048;
  for await (const chunk of from as AsyncIterable<Buffer | string>) {
    const bytes = Buffer.from(chunk as string);
    for (let start = 0; start < bytes.length; start += length) yield bytes.subarray(start, start + length);
  }
}
