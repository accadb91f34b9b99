import { spawn } from 'node:child_process';
import { access, constants } from 'node:fs/promises';
import type { DebianKernel } from '../prepare.ts';
import { endingWithUs } from './kernel.ts';

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
  // It says why it stopped the machine, and nothing else.
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
