import type { ChildProcess } from 'node:child_process';
import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { access, constants, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { DebianKernel, NodeParts } from '../prepare.ts';
import { scriptsFolder } from '../prepare.ts';

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

/** Positions in the kernel's list of open files. The first three are for the kernel's own log. */
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

/** How qemu runs the machine's processors. */
export interface Acceleration {
  /** In qemu's terms, for -accel and -cpu. */
  readonly accelerator: string;
  readonly processor: string;
}

const kvm: Acceleration = { accelerator: 'kvm', processor: 'host' };
const translation: Acceleration = { accelerator: 'tcg,thread=multi', processor: 'max' };
const device = '/dev/kvm';
const limitMs = 10_000;

let found: Promise<Acceleration> | undefined;

/** KVM where it can run the kernel, otherwise translation by qemu. */
export function acceleration(kernel: DebianKernel): Promise<Acceleration> {
  found ??= isKvmUsable(kernel).then((usable) => (usable ? kvm : translation));
  return found;
}

/**
 * Boots the kernel without a root file system, at which it panics and the machine ends. A virtual machine may have
 * /dev/kvm and fail at the first instruction that its own host does not emulate. qemu then stops the machine and waits.
 */
async function isKvmUsable(kernel: DebianKernel): Promise<boolean> {
  const isOpen = await access(device, constants.R_OK | constants.W_OK).then(
    () => true,
    () => false,
  );
  if (!isOpen) return false;
  const words = endingWithUs(
    ...[kernel.qemu, '-nodefaults', '-no-user-config', '-no-reboot', '-display', 'none', '-L', kernel.firmware],
    ...['-machine', 'pc', '-accel', kvm.accelerator, '-cpu', kvm.processor, '-m', '256M', '-kernel', kernel.image],
    ...['-append', 'console=ttyS0 panic=-1', '-serial', 'stdio'],
  );
  const probe = spawn('setpriv', words, { stdio: ['ignore', 'pipe', 'pipe'] });
  const limit = setTimeout(() => probe.kill('SIGKILL'), limitMs);
  let log = '';
  probe.stdout.on('data', (data: Buffer) => (log += data.toString()));
  // qemu only reports why it stopped the machine.
  probe.stderr.on('data', () => probe.kill('SIGKILL'));
  try {
    return await new Promise((resolve) => {
      probe.once('error', () => resolve(false));
      probe.once('close', (code) => resolve(code === 0 && log.includes('Unable to mount root fs')));
    });
  } finally {
    clearTimeout(limit);
  }
}

/** Returns the numbers of a list of processors, as in Cpus_allowed_list of proc_pid_status(5): `0-2,5`. */
export const processorsIn = (list: string): number[] =>
  list.split(',').flatMap((range) => {
    const [first = NaN, last = first] = range.split('-').map(Number);
    return Array.from({ length: last - first + 1 }, (_, at) => first + at);
  });

/**
 * Returns the processor, of those that this process may use, to which the fewest processes with this name are bound.
 * Throws if `proc` does not say which it may use.
 * @param before earlier results, which decide between equals: their processes may not be bound yet
 */
export function leastBoundProcessor(name: string, before: readonly number[] = [], proc = '/proc'): number {
  const bound = readdirSync(proc)
    .filter((pid) => /^\d+$/.test(pid))
    .map((pid) => statusOf(join(proc, pid)))
    .filter((status) => status.name === name && status.processors.length === 1)
    .map(({ processors }) => processors[0]);
  const times = (all: readonly (number | undefined)[], processor: number): number =>
    all.filter((each) => each === processor).length;
  const [least] = statusOf(join(proc, 'self')).processors.toSorted(
    (one, other) => times(bound, one) - times(bound, other) || times(before, one) - times(before, other),
  );
  if (least === undefined) throw new Error(`${join(proc, 'self')}/status has no Cpus_allowed_list`);
  return least;
}

interface Status {
  readonly name: string | undefined;
  readonly processors: readonly number[];
}

function statusOf(process: string): Status {
  let text: string;
  try {
    text = readFileSync(join(process, 'status'), 'utf8');
  } catch {
    // It has ended meanwhile.
    return { name: undefined, processors: [] };
  }
  const list = /^Cpus_allowed_list:\s*(\S+)$/m.exec(text)?.[1];
  return { name: /^Name:\s*(.*)$/m.exec(text)?.[1], processors: list === undefined ? [] : processorsIn(list) };
}
