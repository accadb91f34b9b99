import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { gzipSync } from 'node:zlib';
import { execa } from 'execa';

/**
 * Packs a folder as .tar.gz. The same files result in the same bytes: sorted names, one time for all, no user of this
 * machine.
 * @param epoch time of all files in seconds since the epoch
 */
export async function packFolder(folder: string, target: string, epoch: string): Promise<void> {
  const plain = `${target}.tar`;
  const flags = ['--sort=name', `--mtime=@${epoch}`, '--owner=0', '--group=0', '--numeric-owner', '--format=gnu'];
  // Modes depend on the umask of the checkout.
  const modes = '--mode=u=rwX,go=rX';
  await execa('tar', [
    '--create',
    `--file=${plain}`,
    ...flags,
    modes,
    `--directory=${dirname(folder)}`,
    basename(folder),
  ]);
  // The gzip header contains no name and no time.
  writeFileSync(target, gzipSync(readFileSync(plain), { level: 9 }));
  rmSync(plain);
}
