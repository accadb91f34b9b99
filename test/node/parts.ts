import { chmod, cp, mkdir, mkdtemp, readFile, readdir, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { obtain, present } from './cache.ts';
import type { Part, Recipe } from './cache.ts';
import { Archive, unpack } from './debian.ts';
import type { DebianPackage, DownloadedPackage, Suite } from './debian.ts';
import { NodeError } from './errors.ts';
import { dockerArchive, standardImages } from './images.ts';
import type { Progress } from './progress.ts';

export const containerdReleases = ['1.6', '1.7', '2.1'] as const;
export type ContainerdRelease = (typeof containerdReleases)[number];

/** `runc-1.3` is the first runc with the second formula for cpu.weight; `runc` has the first. */
export const runtimes = ['runc', 'crun', 'runc-1.3'] as const;
export type Runtime = (typeof runtimes)[number];

const containerdSuite: Record<ContainerdRelease, Suite> = { '1.6': 'bookworm', '1.7': 'trixie', '2.1': 'forky' };

/** A part made of packages, and what of them is kept: a flat bin/ and lib/, whatever folders the packages use. */
interface PackagedPart {
  readonly name: string;
  readonly packages: readonly DebianPackage[];
  readonly arrange: (unpacked: string, folder: string, finalFolder: string) => Promise<void>;
  /** Raised when `arrange` changes, so that parts made by an older one are not used. */
  readonly revision: number;
}

const kernelPart: PackagedPart = {
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

function containerdPart(release: ContainerdRelease): PackagedPart {
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
  // bookworm's crun refuses the version of the specification that containerd 1.7 and later write.
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

/** systemd's own programs, to check units with and to run them under: the oldest that units are written for. */
const systemdPart: PackagedPart = {
  name: 'systemd',
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
    // Each looks for its own in turn.
    for (const name of await readdir(join(folder, 'lib')))
      if (name.startsWith('libsystemd')) await useLibraries(unpacked, join(folder, 'lib', name), lib, 'libraries');
  },
};

function of(suite: Suite, ...names: string[]): DebianPackage[] {
  return names.map((name) => ({ name, suite }));
}

const triplet = 'x86_64-linux-gnu';
const loader = 'ld-linux-x86-64.so.2';
const libc = [loader, 'libc.so.6', 'libm.so.6'].map((name) => `usr/lib/${triplet}/${name}`);

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

/** Copies all shared libraries flat into one folder. */
async function keepLibraries(unpacked: string, folder: string): Promise<void> {
  await mkdir(folder);
  for (const place of [`lib/${triplet}`, `usr/lib/${triplet}`, `usr/lib/${triplet}/systemd`]) {
    const names = await readdir(join(unpacked, place)).catch(() => []);
    for (const name of names.filter((candidate) => candidate.includes('.so'))) {
      const file = join(unpacked, place, name);
      if ((await stat(file)).isFile()) await cp(file, join(folder, name), { dereference: true });
    }
  }
}

/** Points a program at the libraries that it came with; the host's own libc may be older than it needs. */
async function useLibraries(
  unpacked: string,
  program: string,
  folder: string,
  libraries: 'libraries' | 'own libc',
): Promise<void> {
  const interpreter = libraries === 'own libc' ? ['--set-interpreter', join(folder, loader)] : [];
  await execa(join(unpacked, 'usr/bin/patchelf'), [...interpreter, '--set-rpath', folder, program]);
}

/** Copies programs flat into one folder. Of two names for one thing (a folder that was merged) the one that is there. */
async function keep(unpacked: string, paths: readonly string[], folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  const byName = new Map<string, string[]>();
  for (const path of paths)
    byName.set(path.split('/').at(-1) ?? path, [...(byName.get(path.split('/').at(-1) ?? path) ?? []), path]);
  for (const [name, places] of byName) {
    const target = join(folder, name);
    let found = false;
    for (const place of places) {
      found ||= await cp(join(unpacked, place), target, { dereference: true }).then(
        () => true,
        () => false,
      );
    }
    if (!found) throw new NodeError(`the unpacked packages have no ${places.join(' or ')}`);
    await chmod(target, 0o755);
  }
}

export interface PackagedParts {
  readonly kernel: Part;
  readonly tools: Part;
  readonly containerd: Part;
  readonly runtime: Part;
}

/** systemd's programs: the folder with bin/systemd, bin/systemctl and bin/systemd-analyze. */
export async function obtainSystemd(cache: string, progress: Progress): Promise<Part> {
  const downloads = new Downloads(['bookworm'], progress);
  try {
    return await obtain(cache, recipeOf(systemdPart, downloads), progress);
  } finally {
    await downloads.close();
  }
}

/** All parts that come from packages, from the cache where they are whole. */
export async function obtainPackagedParts(
  cache: string,
  release: ContainerdRelease,
  runtime: Runtime,
  progress: Progress,
): Promise<PackagedParts> {
  const wanted = [kernelPart, toolsPart, containerdPart(release), runtimeParts[runtime]] as const;
  const missing: PackagedPart[] = [];
  for (const part of wanted) if (!(await present(cache, { name: part.name, key: keyOf(part) }))) missing.push(part);
  const suites = [...new Set(missing.flatMap((part) => part.packages.map(({ suite }) => suite)))];
  const downloads = new Downloads(suites, progress);
  try {
    const [kernel, tools, containerd, chosenRuntime] = wanted;
    return {
      kernel: await obtain(cache, recipeOf(kernel, downloads), progress),
      tools: await obtain(cache, recipeOf(tools, downloads), progress),
      containerd: await obtain(cache, recipeOf(containerd, downloads), progress),
      runtime: await obtain(cache, recipeOf(chosenRuntime, downloads), progress),
    };
  } finally {
    await downloads.close();
  }
}

function keyOf(part: PackagedPart): string {
  return JSON.stringify([part.revision, part.packages]);
}

function recipeOf(part: PackagedPart, downloads: Downloads): Recipe {
  return {
    name: part.name,
    key: keyOf(part),
    async make(folder, finalFolder) {
      const versions: Record<string, string> = {};
      const unpacked = await mkdtemp(join(tmpdir(), 'cri-resize-shim-unpacked-'));
      try {
        for (const file of await downloads.get(part.packages)) {
          await unpack(file, unpacked);
          versions[file.name] = file.version;
        }
        await part.arrange(unpacked, folder, finalFolder);
      } finally {
        await rm(unpacked, { recursive: true, force: true });
      }
      return versions;
    },
  };
}

/** The archive, opened when the first package is really needed. */
class Downloads {
  private archive: Promise<Archive> | undefined;

  constructor(
    private readonly suites: readonly Suite[],
    private readonly progress: Progress,
  ) {}

  async get(wanted: readonly DebianPackage[]): Promise<DownloadedPackage[]> {
    this.archive ??= Archive.open(this.suites, this.progress);
    return (await this.archive).fetch(wanted, this.progress);
  }

  async close(): Promise<void> {
    const archive = await this.archive?.catch(() => undefined);
    await archive?.close();
  }
}
