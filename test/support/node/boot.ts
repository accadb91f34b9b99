import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { cp, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Duplex, Readable, Writable } from 'node:stream';
import { writeBootFiles } from './boot-files.ts';
import { NodeError } from '../../../tools/download/errors.ts';
import { channels, kernelLog, kernelLogTail, killKernel, startKernel } from './kernel.ts';
import { packageRoot } from '../../../tools/download/places.ts';
import { prepareNode } from './prepare.ts';
import type { NodeChoice } from './prepare.ts';
import { silent } from '../../../tools/download/progress.ts';
import type { Progress } from '../../../tools/download/progress.ts';

/** Where the command's input comes from and its output goes. `terminal` hands over our own, for shells. */
export type CommandStdio =
  | 'inherit'
  | 'terminal'
  | { readonly stdin?: Readable; readonly stdout?: Writable; readonly stderr?: Writable };

export interface RunOptions extends NodeChoice {
  readonly command: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Inside the node; the checkout when not given. */
  readonly cwd?: string;
  /** `inherit` (the default) shows output on ours and gives no input. */
  readonly stdio?: CommandStdio;
  /** For the command, from its start. */
  readonly timeoutMs?: number;
  /** NODE_OUT inside. Made if absent; a fresh temporary folder when not given. The caller removes it. */
  readonly outDir?: string;
  readonly memoryBytes?: number;
  /** False boots without containerd: `node-containerd start` starts it. */
  readonly startContainerd?: boolean;
  readonly progress?: Progress;
  /** Ends the node at once. */
  readonly signal?: AbortSignal;
}

export interface RunResult {
  /** The command's; 124 when it ran out of time, as timeout(1) has it. */
  readonly exitCode: number;
  readonly outDir: string;
  readonly timedOut: boolean;
}

export const defaultMemoryBytes = 4 * 2 ** 30;
const timedOutCode = 124;
const whileRunning = 'while the command ran';
/** How long a boot may take before it is given up, and an end that was asked for before it is enforced. */
const bootLimitMs = 60_000;
/** A User Mode Linux that comes up beside others on a busy machine dies now and then before anything runs in it. */
const mostBoots = 3;
const endLimitMs = 10_000;

/**
 * Runs a command in a freshly booted node. One that ends before the command has begun is booted once more, and said so.
 * @throws NodeError when the node, not the command, fails.
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
    progress(`${message}\nbooting it once more`);
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
    const memoryBytes = options.memoryBytes ?? defaultMemoryBytes;
    const kernel = await startKernel({ parts, folder, memoryBytes, terminal });
    const copied = typeof stdio === 'object' || stdio === 'inherit' ? copyStreams(kernel, stdio) : Promise.resolve();
    const end = await follow(kernel, options);
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

/** Reads what init.sh says on the control console, and enforces the limits of time, until the kernel has ended. */
async function follow(kernel: ChildProcess, options: RunOptions): Promise<KernelEnd> {
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
  // The kernel may go at any moment; what it leaves unread is no error of ours.
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
    // An exit code before the command has run is init's own.
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

/** Resolves when all output has been passed on. */
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

/** Gives the next piece of input each time that init.sh asks for one; it says why there. */
function inputSender(from: Readable, to: Writable): () => void {
  const pieces = piecesOf(from);
  return () => {
    pieces.next().then(
      ({ value, done }) => to.write(done === true ? '.\n' : `${value.toString('base64')}\n`),
      // Input that cannot be read any more has ended.
      () => to.write('.\n'),
    );
  };
}

/** Short enough for one line of a console in base64. */
async function* piecesOf(from: Readable): AsyncGenerator<Buffer, void> {
  const length = 2048;
  for await (const chunk of from as AsyncIterable<Buffer | string>) {
    const bytes = Buffer.from(chunk as string);
    for (let start = 0; start < bytes.length; start += length) yield bytes.subarray(start, start + length);
  }
}
