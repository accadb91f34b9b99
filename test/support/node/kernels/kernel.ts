import type { ChildProcess } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { NodeParts } from '../prepare.ts';
import { scriptsFolder } from '../scripts.ts';

/** Differences between the kernels on the host. Differences inside of the node are in the script NAME.sh. */
export interface Kernel {
  /** Starts it in a process group of its own. The process ends with it. */
  readonly start: (start: KernelStart) => Promise<ChildProcess>;
  /** The node's memory, unless the caller names another size. */
  readonly memoryBytes: number;
  /** Time limit for a boot, from the start to the command. */
  readonly bootLimitMs: number;
  /** Time limit for a requested end before it is enforced. */
  readonly endLimitMs: number;
}

export interface KernelStart {
  readonly parts: NodeParts;
  /** The folder of this boot on the host. */
  readonly folder: string;
  /** The folder on the host that the node may write to. */
  readonly outDir: string;
  readonly memoryBytes: number;
  /** An open terminal for the first console, or undefined for separate pipes. */
  readonly terminal: number | undefined;
}

/** Positions in the kernel's list of open files. The first three belong to its own log. */
export const channels = { stdin: 3, stdout: 4, stderr: 5, control: 6 } as const;

export function kernelLog(folder: string): string {
  return join(folder, 'kernel.log');
}

/** Returns the last lines of the kernel's log, for the message of a failed boot. */
export async function kernelLogTail(folder: string, lines = 30): Promise<string> {
  const text = await readFile(kernelLog(folder), 'utf8').catch(() => '');
  return text.trimEnd().split('\n').slice(-lines).join('\n');
}

/** Returns the words of the kernel's command line that start init.sh. */
export function initWords({ parts, folder }: KernelStart): string[] {
  const word = (text: string): string => (/\s/.test(text) ? `"${text}"` : text);
  return [
    `init=${word(join(parts.applets, 'busybox'))}`,
    '--',
    'sh',
    word(join(scriptsFolder(), 'init.sh')),
    word(folder),
  ];
}

/** If this process dies before it can end the command, the host kernel kills it. */
export const endingWithUs = (...command: string[]): string[] => ['--pdeathsig', 'KILL', '--', ...command];

/** Kills the kernel and all its host processes. */
export function killKernel(kernel: ChildProcess): void {
  if (kernel.pid === undefined) return;
  try {
    process.kill(-kernel.pid, 'SIGKILL');
  } catch {
    // It has already ended.
  }
}
