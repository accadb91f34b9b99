import { cp, mkdir, readdir, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { keep, keepLibraries, of, type PackagedPart, useLibraries } from './packaged.ts';

const libraries = [
  ...[
    'libacl1',
    'libapparmor1',
    'libaudit1',
    'libblkid1',
    'libc6',
    'libcap-ng0',
    'libcap2',
    'libcrypt1',
    'libdbus-1-3',
  ],
  ...['libexpat1', 'libgcc-s1', 'liblzma5', 'libmount1', 'libpam0g', 'libpcre2-8-0', 'libseccomp2', 'libselinux1'],
  ...['libssl3t64', 'libsystemd-shared', 'libsystemd0', 'libzstd1'],
];

const programs = [
  ...['busctl', 'journalctl', 'systemctl', 'systemd-analyze', 'systemd-cgls', 'systemd-notify', 'systemd-run'],
  ...['dbus-daemon', 'dbus-send'],
];
/** Programs of the image that its base does not have. */
const ofTheImage = [
  'usr/lib/systemd/systemd-socket-proxyd',
  'usr/bin/s6-ipcclient',
  'usr/bin/s6-ipcserver-socketbinder',
];
const daemons = ['systemd', 'systemd-executor', 'systemd-journald', 'systemd-shutdown', 'systemd-socket-proxyd'];

/** The units of Debian's packages that start. A node for containers has no terminals, disks and users. */
const started = {
  'sockets.target': ['dbus.socket', 'systemd-journald.socket', 'systemd-journald-dev-log.socket'],
  'sysinit.target': ['systemd-journald.service'],
  'multi-user.target': ['dbus.service'],
};

/**
 * systemd and D-Bus with the libraries that they were built with, including the C library. The programs of the machine
 * below use their own. In the node systemd.sh installs them. The folder image has the programs for the image's entry
 * point.
 */
export const systemdPart: PackagedPart = {
  name: 'systemd',
  packages: [
    ...of('trixie', 'systemd', 'dbus', 'dbus-daemon', 'dbus-bin', 'dbus-system-bus-common', ...libraries),
    ...of('bookworm', 'patchelf', 's6', 'libs6-2.11', 'libskarnet2.13'),
  ],
  revision: 3,
  async arrange(unpacked, folder, finalFolder) {
    const [bin, lib, own, image] = ['bin', 'lib', 'systemd', 'image'].map((name) => join(folder, name)) as [
      string,
      string,
      string,
      string,
    ];
    await keep(
      unpacked,
      programs.map((name) => `usr/bin/${name}`),
      bin,
    );
    await keep(
      unpacked,
      daemons.map((name) => `usr/lib/systemd/${name}`),
      own,
    );
    await keep(unpacked, ofTheImage, image);
    await keepLibraries(unpacked, lib);
    await copyUnits(join(unpacked, 'usr/lib/systemd/system'), join(own, 'system'));
    await cp(join(unpacked, 'usr/share/dbus-1'), join(folder, 'dbus-1'), { recursive: true });
    const finalLib = join(finalFolder, 'lib');
    for (const from of [bin, own, image])
      for (const { name } of (await readdir(from, { withFileTypes: true })).filter((entry) => entry.isFile()))
        await useLibraries(unpacked, join(from, name), finalLib, 'own libc and all they need');
    for (const name of await readdir(lib))
      if (name.startsWith('libsystemd-')) await useLibraries(unpacked, join(lib, name), finalLib, 'all they need');
  },
};

async function copyUnits(from: string, to: string): Promise<void> {
  await cp(from, to, {
    recursive: true,
    verbatimSymlinks: true,
    filter: (path) => !/\.(wants|requires)(\/|$)/.test(path),
  });
  for (const [target, units] of Object.entries(started)) {
    await mkdir(join(to, `${target}.wants`));
    for (const unit of units) await symlink(`../${unit}`, join(to, `${target}.wants`, unit));
  }
}
