import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { keep, keepLibraries, of, type PackagedPart, useLibraries } from '../support/node/parts/packaged.ts';

/** systemd's programs in the oldest supported version, to check units and to run them. */
export const systemdPrograms: PackagedPart = {
  name: 'systemd-252',
  packages: of(
    'bookworm',
    ...['systemd', 'libsystemd-shared', 'libacl1', 'libapparmor1', 'libaudit1', 'libblkid1', 'libcap-ng0', 'libcap2'],
    ...['libcrypt1', 'libgcrypt20', 'libgpg-error0', 'libip4tc2', 'libkmod2', 'liblz4-1', 'liblzma5', 'libmount1'],
    ...['libpam0g', 'libpcre2-8-0', 'libseccomp2', 'libselinux1', 'libssl3', 'libzstd1', 'libc6', 'patchelf'],
  ),
  revision: 1,
  async arrange(unpacked, folder, finalFolder) {
    const programs = ['lib/systemd/systemd', 'bin/systemctl', 'usr/bin/systemd-analyze'];
    await keep(unpacked, programs, join(folder, 'bin'));
    await keepLibraries(unpacked, join(folder, 'lib'));
    const lib = join(finalFolder, 'lib');
    for (const program of await readdir(join(folder, 'bin')))
      await useLibraries(unpacked, join(folder, 'bin', program), lib, 'own libc');
    // These libraries load further libraries.
    for (const name of await readdir(join(folder, 'lib')))
      if (name.startsWith('libsystemd')) await useLibraries(unpacked, join(folder, 'lib', name), lib, 'libraries');
  },
};
