import { execFileSync } from 'node:child_process';
import { closeSync, mkdirSync, openSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { MiB } from '../../src/core/quantities/sizes.ts';

const FOLDER = '/run/chaos';
const IMAGE = join(FOLDER, 'image');
const SIZE = 4 * MiB;
const REMOUNT_TRIES = 50;

/** A small disk for the state folder: a file system on a loop device, which can be full, read-only or frozen. */
export class Disk {
  readonly #mounted = join(FOLDER, 'disk');
  readonly #ballast = join(this.#mounted, 'ballast');
  readonly state = join(this.#mounted, 'state');

  mount(): void {
    mkdirSync(this.#mounted, { recursive: true });
    execFileSync('insmod', [join(process.env['NODE_MODULES'] ?? '', 'kernel/drivers/block/loop.ko')]);
    execFileSync('truncate', ['-s', String(SIZE), IMAGE]);
    execFileSync(applet('mke2fs'), ['-F', IMAGE], { stdio: 'ignore' });
    execFileSync(applet('mount'), ['-t', 'ext4', '-o', 'loop', IMAGE, this.#mounted]);
    mkdirSync(this.state, { mode: 0o700 });
  }

  unmount(): void {
    execFileSync(applet('umount'), [this.#mounted]);
  }

  /** Takes all free space. */
  fill(): void {
    const file = openSync(this.#ballast, 'w');
    try {
      for (let size = 65_536; size >= 512; size /= 2) writeUntilFull(file, Buffer.alloc(size));
    } finally {
      closeSync(file);
    }
  }

  empty(): void {
    rmSync(this.#ballast, { force: true });
  }

  /** Mounts it read-only, as soon as no file is being written. */
  readOnly(): void {
    for (let tries = 1; ; tries += 1)
      try {
        return void execFileSync(applet('mount'), ['-o', 'remount,ro', this.#mounted], { stdio: 'ignore' });
      } catch (error) {
        if (tries === REMOUNT_TRIES) throw error;
      }
  }

  writable(): void {
    execFileSync(applet('mount'), ['-o', 'remount,rw', this.#mounted]);
  }

  /** Lets writes and syncs hang until {@link thaw}. */
  freeze(): void {
    execFileSync(applet('fsfreeze'), ['--freeze', this.#mounted]);
  }

  thaw(): void {
    execFileSync(applet('fsfreeze'), ['--unfreeze', this.#mounted]);
  }
}

function writeUntilFull(file: number, block: Buffer): void {
  try {
    for (;;) writeSync(file, block);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
  }
}

/** The node's own busybox applet, which is the same on each machine. */
const applet = (name: string): string => join(process.env['NODE_APPLETS'] ?? '', name);
