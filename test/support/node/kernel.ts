import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { openSync, closeSync } from 'node:fs';
import { readFile, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { NodeError } from '../../../tools/download/errors.ts';
import { scriptsFolder } from './scripts.ts';
import type { NodeParts } from './prepare.ts';

export interface KernelStart {
  readonly parts: NodeParts;
  readonly folder: string;
  readonly memoryBytes: number;
  /** An open terminal for the first console, or undefined for separate pipes. */
  readonly terminal: number | undefined;
}

/** Positions in the kernel's list of open files. The first three belong to its own log. */
export const channels = { stdin: 3, stdout: 4, stderr: 5, control: 6 } as const;

export function kernelLog(folder: string): string {
  return join(folder, 'kernel.log');
}

/** Returns the kernel's command line. init.sh describes the consoles. */
export function kernelArguments(start: KernelStart): string[] {
  const word = (text: string): string => (/\s/.test(text) ? `"${text}"` : text);
  return [
    `mem=${Math.ceil(start.memoryBytes / 2 ** 20)}M`,
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
    `init=${word(join(start.parts.applets, 'busybox'))}`,
    '--',
    'sh',
    word(join(scriptsFolder(), 'init.sh')),
    word(start.folder),
  ];
}

/**
 * Starts the kernel in a separate session, so that all its host processes can be killed as one group. If this process
 * dies before it can do that, the host kernel kills the guest (setpriv --pdeathsig).
 */
export async function startKernel(start: KernelStart): Promise<ChildProcess> {
  const log = openSync(kernelLog(start.folder), 'a');
  const { terminal } = start;
  const separate = terminal === undefined ? 'pipe' : 'ignore';
  try {
    return spawn('setpriv', ['--pdeathsig', 'KILL', '--', start.parts.kernel, ...kernelArguments(start)], {
      cwd: '/',
      detached: true,
      env: { PATH: process.env['PATH'], HOME: start.folder, TMPDIR: await memoryFolder(start.memoryBytes) },
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

/** Returns the last lines of the kernel's log, for the message of a failed boot. */
export async function kernelLogTail(folder: string, lines = 30): Promise<string> {
  const text = await readFile(kernelLog(folder), 'utf8').catch(() => '');
  return text.trimEnd().split('\n').slice(-lines).join('\n');
}

/** Kills the kernel and all its host processes. */
export function killKernel(kernel: ChildProcess): void {
  if (kernel.pid === undefined) return;
  try {
    process.kill(-kernel.pid, 'SIGKILL');
  } catch {
    // It has already ended.
  }
}
