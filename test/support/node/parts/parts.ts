import { cp, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';
import type { Part } from '../../../../tools/download/cache.ts';
import { NodeError } from '../../../../tools/download/errors.ts';
import type { Progress } from '../../../../tools/download/progress.ts';
import type { Suite } from './debian.ts';
import { debianKernelPart, earlierDebianKernelPart, qemuPart } from './debian-kernel.ts';
import type { BuiltRelease } from './go-module.ts';
import { builtContainerd, builtReleases, builtVersions, canObtain, obtainBuilt } from './go-module.ts';
import { dockerArchive, standardImages } from './images.ts';
import { keep, keepLibraries, libc, obtainPackaged, of, type PackagedPart, useLibraries } from './packaged.ts';
import { systemdPart } from './systemd-part.ts';

/** The releases that are Debian packages. */
export const packagedReleases = ['1.6', '1.7', '2.1'] as const;
export type PackagedRelease = (typeof packagedReleases)[number];
/** The others are built from their sources, which needs a Go toolchain and takes minutes the first time. */
export type ContainerdRelease = PackagedRelease | BuiltRelease;
export const containerdReleases: readonly ContainerdRelease[] = [...packagedReleases, ...builtReleases].toSorted();

const isBuilt = (release: ContainerdRelease): release is BuiltRelease =>
  builtReleases.some((built) => built === release);

/** `runc-1.3` is the first runc with the second formula for cpu.weight; `runc` has the first. */
export const runtimes = ['runc', 'crun', 'runc-1.3'] as const;
export type Runtime = (typeof runtimes)[number];

/** The first process of the node: only the node's own script, or systemd with its cgroup driver. */
export const inits = ['plain', 'systemd'] as const;
export type Init = (typeof inits)[number];

/**
 * The kernel of the node: User Mode Linux, or Debian's kernel for virtual machines in qemu. `debian-6.16` rejects a
 * remount of a tmpfs with noswap that does not repeat it, as those of 6.4 to 6.16 do.
 */
export const kernels = ['uml', 'debian', 'debian-6.16'] as const;
export type KernelName = (typeof kernels)[number];

/** Whether {@link obtainParts} can find or build this release here. */
export const isObtainable = async (release: ContainerdRelease): Promise<boolean> =>
  !isBuilt(release) || canObtain(builtContainerd(release));

const containerdSuite: Record<PackagedRelease, Suite> = { '1.6': 'bookworm', '1.7': 'trixie', '2.1': 'forky' };

const umlPart: PackagedPart = {
  name: 'kernel',
  packages: [
    { name: 'user-mode-linux', suite: 'forky' },
    { name: 'libc6', suite: 'forky' },
    { name: 'patchelf', suite: 'bookworm' },
  ],
  revision: 1,
  async arrange(unpacked, folder, finalFolder) {
    await keep(unpacked, ['usr/bin/linux.uml'], join(folder, 'bin'));
    await keep(unpacked, libc, join(folder, 'lib'));
    const modules = join(unpacked, 'usr/lib/uml/modules');
    const [release] = await readdir(modules);
    if (release === undefined) throw new NodeError('the package user-mode-linux has no kernel modules');
    await cp(join(modules, release), join(folder, 'modules'), { recursive: true });
    await useLibraries(unpacked, join(folder, 'bin/linux.uml'), join(finalFolder, 'lib'), 'own libc');
  },
};

const toolsPart: PackagedPart = {
  name: 'tools',
  packages: [
    { name: 'busybox-static', suite: 'bookworm' },
    { name: 'containernetworking-plugins', suite: 'bookworm' },
  ],
  revision: 1,
  async arrange(unpacked, folder) {
    const applets = join(folder, 'applets');
    await keep(unpacked, ['bin/busybox', 'usr/bin/busybox'], applets);
    const busybox = join(applets, 'busybox');
    const { stdout } = await execa(busybox, ['--list']);
    const names = stdout.split('\n').filter((name) => name !== 'busybox');
    for (const name of names) await symlink('busybox', join(applets, name));
    await cp(join(unpacked, 'usr/lib/cni'), join(folder, 'cni'), { recursive: true });
    const archive = dockerArchive(standardImages(await readFile(busybox), names));
    await writeFile(join(folder, 'images.tar'), archive);
  },
};

function containerdPart(release: PackagedRelease): PackagedPart {
  return {
    name: `containerd-${release}`,
    packages: [{ name: 'containerd', suite: containerdSuite[release] }],
    revision: 1,
    async arrange(unpacked, folder) {
      const programs = ['containerd', 'containerd-shim-runc-v2', 'ctr'].map((name) => `usr/bin/${name}`);
      await keep(unpacked, programs, join(folder, 'bin'));
    },
  };
}

const runtimeParts: Record<Runtime, PackagedPart> = {
  runc: {
    name: 'runc',
    packages: [...of('bookworm', 'runc', 'libseccomp2', 'patchelf')],
    revision: 1,
    arrange: (...folders) => arrangeRuntime('usr/sbin/runc', 'libraries', ...folders),
  },
  // bookworm's crun rejects the version of the specification that containerd 1.7 and later write.
  crun: {
    name: 'crun',
    packages: [
      ...of(
        'forky',
        'crun',
        'libblake3-0',
        'libcap2',
        'libgcc-s1',
        'libjson-c5',
        'libseccomp2',
        'libsystemd0',
        'libc6',
      ),
      ...of('bookworm', 'patchelf'),
    ],
    revision: 2,
    arrange: (...folders) => arrangeRuntime('usr/bin/crun', 'own libc', ...folders),
  },
  'runc-1.3': {
    name: 'runc-1.3',
    packages: [...of('forky', 'runc', 'libseccomp2', 'libc6'), ...of('bookworm', 'patchelf')],
    revision: 1,
    arrange: (...folders) => arrangeRuntime('usr/sbin/runc', 'own libc', ...folders),
  },
};

const kernelParts: Record<KernelName, PackagedPart> = {
  uml: umlPart,
  debian: debianKernelPart,
  'debian-6.16': earlierDebianKernelPart,
};

async function arrangeRuntime(
  program: string,
  libraries: 'libraries' | 'own libc',
  unpacked: string,
  folder: string,
  finalFolder: string,
): Promise<void> {
  const bin = join(folder, 'bin');
  await keep(unpacked, [program], bin);
  await keepLibraries(unpacked, join(folder, 'lib'));
  await useLibraries(unpacked, join(bin, program.split('/').at(-1) ?? program), join(finalFolder, 'lib'), libraries);
}

export interface DiskParts {
  readonly kernel: Part;
  /** Set if the kernel needs a virtual machine. */
  readonly qemu: Part | undefined;
  readonly tools: Part;
  readonly containerd: Part;
  readonly runtime: Part;
  readonly systemd: Part;
}

/** Returns all parts of a node except the CRI tools, from the cache if they are complete. */
export async function obtainParts(
  cache: string,
  release: ContainerdRelease,
  runtime: Runtime,
  kernelName: KernelName,
  progress: Progress,
): Promise<DiskParts> {
  const [kernel, tools, chosenRuntime, packagedContainerd, systemd, qemu] = await obtainPackaged(
    cache,
    [
      kernelParts[kernelName],
      toolsPart,
      runtimeParts[runtime],
      isBuilt(release) ? undefined : containerdPart(release),
      systemdPart,
      kernelName === 'uml' ? undefined : qemuPart,
    ],
    progress,
  );
  const containerd = isBuilt(release) ? await built(release, progress) : packagedContainerd!;
  return { kernel, qemu, tools, containerd, runtime: chosenRuntime, systemd };
}

async function built(release: BuiltRelease, progress: Progress): Promise<Part> {
  const { folder, versions } = await obtainBuilt(builtContainerd(release), progress);
  return { folder, versions: { ...versions, containerd: builtVersions[release] } };
}
