import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { MiB } from '../../../../src/core/quantities/sizes.ts';
import { NodeError } from '../../../../tools/download/errors.ts';
import type { DebianKernel } from '../prepare.ts';
import type { Acceleration, Kernel, KernelStart } from './kernel.ts';
import { acceleration, channels, endingWithUs, initWords, kernelLog } from './kernel.ts';

/**
 * Debian's kernel for virtual machines in qemu. Its root is the host's file system, as with User Mode Linux, by
 * virtiofs. The limits are for a qemu that translates each instruction, next to other load.
 */
export const debian = (kernel: DebianKernel): Kernel => ({
  start: (start) => startMachine(kernel, start),
  memoryBytes: 3 * 2 ** 30,
  bootLimitMs: 300_000,
  endLimitMs: 60_000,
});

/** The folders of the host that the node has, by the names with which debian.sh mounts them. */
const sharesOf = (start: KernelStart): readonly Share[] => [
  { tag: 'root', folder: '/', options: ['--readonly', '--no-announce-submounts'] },
  { tag: 'out', folder: start.outDir, options: [] },
];

interface Share {
  readonly tag: string;
  readonly folder: string;
  readonly options: readonly string[];
}

const processors = 2;
const swapBytes = 512 * MiB;
/** Number of pages of 2 MiB. Containers get them by the limit hugetlb.2MB.max. */
const hugePages = 32;

async function startMachine(kernel: DebianKernel, start: KernelStart): Promise<ChildProcess> {
  await checkMemory(start.memoryBytes);
  const accelerated = await acceleration(kernel);
  const swap = await open(join(start.folder, 'swap'), 'w');
  await swap.truncate(swapBytes);
  await swap.close();
  const log = openSync(kernelLog(start.folder), 'a');
  const servers: ChildProcess[] = [];
  try {
    for (const share of sharesOf(start)) servers.push(await startShare(kernel, share, start.folder));
    const { terminal } = start;
    const separate = terminal === undefined ? 'pipe' : 'ignore';
    const machine = spawn('setpriv', endingWithUs(kernel.qemu, ...machineArguments(kernel, start, accelerated)), {
      cwd: '/',
      detached: true,
      env: { PATH: process.env['PATH'], HOME: start.folder },
      stdio: [terminal ?? 'ignore', terminal ?? log, log, separate, separate, separate, 'pipe'],
    });
    machine.once('exit', () => endAll(servers));
    machine.once('error', () => endAll(servers));
    return machine;
  } catch (error) {
    endAll(servers);
    throw error;
  } finally {
    closeSync(log);
  }
}

function endAll(processes: readonly ChildProcess[]): void {
  for (const one of processes) one.kill('SIGKILL');
}

const socketOf = (folder: string, { tag }: Share): string => join(folder, `${tag}.sock`);

/** Resolves when the share accepts the connection of qemu. */
async function startShare(kernel: DebianKernel, share: Share, folder: string): Promise<ChildProcess> {
  const server = spawn(
    'setpriv',
    endingWithUs(
      kernel.virtiofsd,
      ...['--shared-dir', share.folder, '--socket-path', socketOf(folder, share), '--sandbox', 'none'],
      // The page cache of a file outlives an open, as on a disk. Writes go through at once: the host reads them while
      // the node runs.
      ...['--cache', 'always'],
      ...share.options,
    ),
    { stdio: ['ignore', 'ignore', 'pipe'] },
  );
  const lines: string[] = [];
  const listening = new Promise<boolean>((resolve) => {
    createInterface({ input: server.stderr }).on('line', (line) => {
      lines.push(line);
      if (line.includes('Waiting for vhost-user socket connection')) resolve(true);
    });
    server.once('close', () => resolve(false));
    server.once('error', () => resolve(false));
  });
  if (await listening) return server;
  throw new NodeError(`virtiofsd does not share ${share.folder} with the node: ${lines.join('\n')}`);
}

/** The node's memory is shared with virtiofsd, so it is not in qemu's own. */
function machineArguments(
  kernel: DebianKernel,
  start: KernelStart,
  { accelerator, processor }: Acceleration,
): string[] {
  const { folder, memoryBytes, terminal } = start;
  const console = (name: 'stdin' | 'stdout' | 'stderr' | 'control', backend: string): string[] => [
    ...['-chardev', `${backend},id=${name}`, '-device', `virtconsole,chardev=${name}`],
  ];
  const socket = (name: keyof typeof channels): string => `socket,fd=${channels[name]}`;
  const megabytes = Math.ceil(memoryBytes / MiB);
  return [
    ...['-nodefaults', '-no-user-config', '-no-reboot', '-display', 'none', '-L', kernel.firmware],
    ...['-machine', 'pc,memory-backend=memory', '-accel', accelerator, '-cpu', processor, '-smp', String(processors)],
    ...['-m', `${megabytes}M`, '-object', `memory-backend-memfd,id=memory,size=${megabytes}M,share=on`],
    ...['-kernel', kernel.image, '-append', kernelWords(start).join(' ')],
    ...['-chardev', `file,id=log,path=${comma(kernelLog(folder))},append=on`, '-serial', 'chardev:log'],
    // The order gives the numbers of /dev/hvc*.
    ...['-device', 'virtio-serial-pci'],
    ...console('stdout', terminal === undefined ? socket('stdout') : 'stdio,signal=off'),
    ...console('stderr', terminal === undefined ? socket('stderr') : 'null'),
    ...console('stdin', terminal === undefined ? socket('stdin') : 'null'),
    ...console('control', socket('control')),
    ...sharesOf(start).flatMap((share) => [
      ...['-chardev', `socket,id=${share.tag},path=${comma(socketOf(folder, share))}`],
      ...['-device', `vhost-user-fs-pci,chardev=${share.tag},tag=${share.tag}`],
    ]),
    ...['-drive', `id=swap,if=none,format=raw,cache=unsafe,file=${comma(join(folder, 'swap'))}`],
    ...['-device', 'virtio-blk-pci,drive=swap'],
  ];
}

/** Escapes commas, which separate qemu's options, by doubling them. */
const comma = (path: string): string => path.replaceAll(',', ',,');

function kernelWords(start: KernelStart): string[] {
  return [
    ...['root=root', 'rootfstype=virtiofs', 'ro', 'console=ttyS0', 'panic=-1', `hugepages=${hugePages}`],
    // Mitigations slow down every system call, and the node runs no hostile code.
    'mitigations=off',
    // A pause of the host between reads of two clocks is not a clock fault. Other clock sources are slow to read.
    ...['tsc=reliable', 'nowatchdog'],
    ...initWords(start),
  ];
}

/** Rejects if the host has too little memory, because it would kill the machine without a message. */
async function checkMemory(bytes: number): Promise<void> {
  const text = await readFile('/proc/meminfo', 'utf8');
  const available = Number(/^MemAvailable:\s+(\d+) kB$/m.exec(text)?.[1]) * 1024;
  if (available >= bytes) return;
  const size = (value: number): string => `${(value / 2 ** 30).toFixed(1)} GiB`;
  throw new NodeError(
    `the node's memory (${size(bytes)}) is more than this machine has left (${size(available)}): free some, or set less with --mem`,
  );
}
