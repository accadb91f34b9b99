import { cp, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';
import { NodeError } from '../../../../tools/download/errors.ts';
import type { DebianPackage } from './debian.ts';
import { keep, keepLibraries, loader, of, type PackagedPart, triplet, useLibraries } from './packaged.ts';

/** One of Debian's kernels for virtual machines, with all its modules. */
const kernelPart = (name: string, image: DebianPackage): PackagedPart => ({
  name,
  packages: [
    image,
    ...of('trixie', 'kmod', 'libc6', 'libkmod2', 'liblzma5', 'libssl3t64', 'libzstd1'),
    { name: 'busybox-static', suite: 'bookworm' },
  ],
  revision: 2,
  async arrange(unpacked, folder) {
    const modules = join(unpacked, 'usr/lib/modules');
    const [release] = await readdir(modules);
    if (release === undefined) throw new NodeError(`the package ${image.name} has no kernel modules`);
    await cp(join(unpacked, 'boot', `vmlinuz-${release}`), join(folder, 'vmlinuz'));
    const tools = join(unpacked, 'tools');
    await keep(unpacked, ['bin/busybox', 'usr/bin/busybox', 'sbin/depmod', 'usr/sbin/depmod'], tools);
    // insmod of busybox reads no compressed modules.
    await execa('find', [modules, '-name', '*.ko.xz', '-exec', join(tools, 'busybox'), 'unxz', '{}', '+']);
    const lib = join(unpacked, 'usr/lib', triplet);
    await execa(join(lib, loader), [
      '--library-path',
      lib,
      join(tools, 'depmod'),
      '-b',
      join(unpacked, 'usr'),
      release,
    ]);
    await cp(join(modules, release), join(folder, 'modules'), { recursive: true });
  },
});

/** The newest kernel of Debian 13. */
export const debianKernelPart = kernelPart('kernel-debian', {
  name: 'linux-image-cloud-amd64',
  suite: 'trixie',
  isMeta: true,
});

export const earlierDebianKernelPart = kernelPart('kernel-debian-6.16', {
  name: 'linux-image-6.16.3+deb13-cloud-amd64',
  suite: 'trixie-backports',
});

const libraries = [
  ...['libaio1t64', 'libatomic1', 'libblkid1', 'libbpf1', 'libc6', 'libcap-ng0', 'libcap2', 'libcapstone5'],
  ...['libdaxctl1', 'libelf1t64', 'libfdt1', 'libffi8', 'libfuse3-4', 'libgcc-s1', 'libglib2.0-0t64', 'libgmp10'],
  ...['libgnutls30t64', 'libhogweed6t64', 'libibverbs1', 'libidn2-0', 'libjpeg62-turbo', 'libkmod2', 'libmount1'],
  ...['libndctl6', 'libnettle8t64', 'libnl-3-200', 'libnl-route-3-200', 'libnuma1', 'libp11-kit0', 'libpcre2-8-0'],
  ...['libpixman-1-0', 'libpmem1', 'libpng16-16t64', 'librdmacm1t64', 'libsasl2-2', 'libseccomp2', 'libselinux1'],
  ...['libslirp0', 'libssl3t64', 'libtasn1-6', 'libudev1', 'libunistring5', 'liburing2', 'libuuid1', 'libvdeplug2t64'],
  ...['libzstd1', 'zlib1g'],
];

const programs = ['usr/bin/qemu-system-x86_64', 'usr/libexec/virtiofsd'];
const firmware = ['usr/share/seabios/bios-256k.bin', 'usr/share/qemu/kvmvapic.bin', 'usr/share/qemu/linuxboot_dma.bin'];

/** qemu and virtiofsd with the libraries that they were built with, including the C library. */
export const qemuPart: PackagedPart = {
  name: 'qemu',
  packages: [
    ...of('trixie', 'qemu-system-x86', 'qemu-system-data', 'seabios', 'virtiofsd', ...libraries),
    ...of('bookworm', 'patchelf'),
  ],
  revision: 1,
  async arrange(unpacked, folder, finalFolder) {
    await keep(unpacked, programs, join(folder, 'bin'));
    await keep(unpacked, firmware, join(folder, 'firmware'));
    await keepLibraries(unpacked, join(folder, 'lib'));
    for (const name of await readdir(join(folder, 'bin')))
      await useLibraries(unpacked, join(folder, 'bin', name), join(finalFolder, 'lib'), 'own libc and all they need');
  },
};
