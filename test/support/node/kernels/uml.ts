import type { ChildProcess } from 'node:child_process';
import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { MiB } from '../../../../src/core/quantities/sizes.ts';
import { NodeError } from '../../../../tools/download/errors.ts';
import type { UmlKernel } from '../prepare.ts';
import type { Kernel, KernelStart } from './kernel.ts';
import { channels, endingWithUs, initWords, kernelLog, leastBoundProcessor } from './kernel.ts';

/** User Mode Linux: the kernel is a process of the host. */
export const uml = (kernel: UmlKernel): Kernel => ({
  start: (start) => startProgram(kernel.program, start),
  memoryBytes: 4 * 2 ** 30,
  bootLimitMs: 300_000,
  endLimitMs: 60_000,
});

/** Returns the kernel's command line. uml.sh describes the consoles. */
function kernelArguments(start: KernelStart): string[] {
  return [
    `mem=${Math.ceil(start.memoryBytes / MiB)}M`,
    'root=/dev/root',
    'rootfstype=hostfs',
    'rootflags=/',
    'ro',
    `uml_dir=${join(start.folder, 'uml')}/`,
    'umid=node',
    'con=null',
    'ssl=null',
    'seccomp=auto',
    start.terminal === undefined
      ? `con0=null,fd:${channels.stdout}`
      : `con0=fd:${channels.stdin},fd:${channels.stdout}`,
    `ssl0=null,fd:${channels.stderr}`,
    'ssl1=null,fd:1',
    `ssl2=fd:${channels.stdin},null`,
    `ssl3=fd:${channels.control}`,
    'console=ttyS1',
    'panic=-1',
    ...initWords(start),
  ];
}

/** The processors of the kernels that this process has bound. */
const chosen: number[] = [];

/**
 * Returns a command that runs on one processor. Only one process of a User Mode Linux runs at a time, and a switch
 * between two of them takes twice the time if it wakes an idle processor.
 */
function bound(name: string, command: readonly string[]): string[] {
  const processor = leastBoundProcessor(name, chosen);
  chosen.push(processor);
  return ['taskset', '-c', String(processor), ...command];
}

/** Starts the kernel in a separate session, so that all its host processes can be killed as one group. */
async function startProgram(program: string, start: KernelStart): Promise<ChildProcess> {
  const log = openSync(kernelLog(start.folder), 'a');
  const { terminal } = start;
  const separate = terminal === undefined ? 'pipe' : 'ignore';
  try {
    const memory = await memoryFolder(start.memoryBytes);
    const command = ['setpriv', ...endingWithUs(program, ...kernelArguments(start))];
    const [first = '', ...rest] = bound(basename(program), command);
    return spawn(first, rest, {
      cwd: '/',
      detached: true,
      env: { PATH: process.env['PATH'], HOME: start.folder, TMPDIR: memory },
      stdio: ['ignore', log, log, terminal ?? 'pipe', terminal ?? 'pipe', separate, 'pipe'],
    });
  } finally {
    closeSync(log);
  }
}

/** The guest's memory is an unlinked file. It must fit into its folder, or the guest dies at a later page. */
async function memoryFolder(bytes: number): Promise<string> {
  const candidates = ['/dev/shm', tmpdir()];
  for (const folder of candidates) {
    const space = await statfs(folder).catch(() => undefined);
    if (space && space.bavail * space.bsize >= bytes) return folder;
  }
  const size = `${(bytes / 2 ** 30).toFixed(1)} GiB`;
  throw new NodeError(
    `no space for the node's memory (${size}) in ${candidates.join(' or ')}: free some, or set less with --mem`,
  );
}
