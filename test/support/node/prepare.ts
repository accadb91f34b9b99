import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { cacheRoot, packageRoot } from '../../../tools/download/places.ts';
import type { Progress } from '../../../tools/download/progress.ts';
import { silent } from '../../../tools/download/progress.ts';
import { cniConfig, containerdConfig, containerdSocket } from './containerd-config.ts';
import { upstreamVersion } from './parts/debian.ts';
import { criTools, obtainBuilt } from './parts/go-module.ts';
import type { ContainerdRelease, DiskParts, Init, KernelName, Runtime } from './parts/parts.ts';
import { obtainParts } from './parts/parts.ts';

export interface NodeChoice {
  readonly containerd: ContainerdRelease;
  readonly runtime: Runtime;
  /** Default: `plain`. */
  readonly init?: Init;
  /** Default: `uml`. */
  readonly kernel?: KernelName;
  /** Whether PATH has crictl and critest, which are built from a Go module the first time. Default: no. */
  readonly criTools?: boolean;
}

interface KernelFiles {
  readonly version: string;
  readonly modules: string;
}

/** User Mode Linux: a program of the host. */
export interface UmlKernel extends KernelFiles {
  readonly name: 'uml';
  readonly program: string;
}

/** A kernel for virtual machines, and what emulates one. */
export interface DebianKernel extends KernelFiles {
  readonly name: 'debian';
  readonly image: string;
  readonly qemu: string;
  readonly virtiofsd: string;
  readonly firmware: string;
}

/** Everything on disk that a boot needs. */
export interface NodeParts extends Omit<NodeChoice, 'kernel' | 'criTools'> {
  readonly init: Init;
  /** The versions that the packages have, such as 2.1.9 for the release 2.1. */
  readonly containerdVersion: string;
  readonly runtimeVersion: string;
  readonly kernel: UmlKernel | DebianKernel;
  readonly applets: string;
  readonly images: string;
  readonly cniPlugins: string;
  readonly runtimeProgram: string;
  /** Programs, units and libraries of systemd. */
  readonly systemd: string;
  /**
   * Folders for PATH with containerd, ctr, the runtime, what the image's entry point needs and, if asked for, crictl
   * and critest.
   */
  readonly programs: readonly string[];
}

/**
 * Makes sure that all parts of the node are in the cache. Quick if they are. Throws GoMissing if one has to be built,
 * and this machine has no Go toolchain.
 */
export async function prepareNode(choice: NodeChoice, progress: Progress = silent): Promise<NodeParts> {
  const cache = cacheRoot();
  const { init = 'plain', kernel: kernelName = 'uml' } = choice;
  const [packaged, builtTools] = await Promise.all([
    obtainParts(cache, choice.containerd, choice.runtime, kernelName, progress),
    choice.criTools === true ? obtainBuilt(criTools, progress) : undefined,
  ]);
  const { tools, containerd, runtime, systemd } = packaged;
  const program = choice.runtime === 'crun' ? 'crun' : 'runc';
  return {
    containerd: choice.containerd,
    runtime: choice.runtime,
    init,
    systemd: systemd.folder,
    containerdVersion: version(containerd.versions, 'containerd'),
    runtimeVersion: version(runtime.versions, program),
    kernel: kernelOf(packaged),
    applets: join(tools.folder, 'applets'),
    images: join(tools.folder, 'images.tar'),
    cniPlugins: join(tools.folder, 'cni'),
    runtimeProgram: join(runtime.folder, 'bin', program),
    programs: [
      join(containerd.folder, 'bin'),
      join(runtime.folder, 'bin'),
      join(systemd.folder, 'image'),
      ...(builtTools === undefined ? [] : [join(builtTools.folder, 'bin')]),
    ],
  };
}

function kernelOf({ kernel: { folder, versions }, qemu }: DiskParts): UmlKernel | DebianKernel {
  const modules = join(folder, 'modules');
  if (qemu === undefined)
    return {
      name: 'uml',
      version: version(versions, 'user-mode-linux'),
      modules,
      program: join(folder, 'bin/linux.uml'),
    };
  const image = Object.keys(versions).find((name) => name.startsWith('linux-image-')) ?? '';
  return {
    name: 'debian',
    version: version(versions, image),
    modules,
    image: join(folder, 'vmlinuz'),
    qemu: join(qemu.folder, 'bin/qemu-system-x86_64'),
    virtiofsd: join(qemu.folder, 'bin/virtiofsd'),
    firmware: join(qemu.folder, 'firmware'),
  };
}

const version = (versions: Readonly<Record<string, string>>, name: string): string =>
  upstreamVersion(versions[name] ?? '');

/** The folder with the scripts that run inside the node. */
export function scriptsFolder(): string {
  return join(packageRoot(), 'test/support/node');
}

export interface BootFiles {
  readonly parts: NodeParts;
  /** The folder of this boot on the host. */
  readonly folder: string;
  /** The folder on the host that appears as NODE_OUT in the node. */
  readonly outDir: string;
  readonly command: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  readonly terminal: boolean;
  readonly stdin: boolean;
  readonly containerd: boolean;
}

export const outFolderInside = '/run/node-out';

/** Quotes any text as one word for a POSIX shell. */
export function quoted(word: string): string {
  return `'${word.replaceAll("'", `'\\''`)}'`;
}

export function shellVariables(variables: Readonly<Record<string, string>>): string {
  return Object.entries(variables)
    .map(([name, value]) => `export ${name}=${quoted(value)}\n`)
    .join('');
}

/** Writes the input of init.sh: its variables, the command, and containerd's configuration. */
export async function writeBootFiles(boot: BootFiles): Promise<void> {
  const { parts, folder } = boot;
  const write = (name: string, content: string): Promise<void> => writeFile(join(folder, name), content);
  await mkdir(join(folder, 'root'));
  await mkdir(join(folder, 'cni'));
  await write('cni/10-pods.conflist', cniConfig());
  const { containerd: release, runtimeProgram: runtime, cniPlugins, init } = parts;
  await write('containerd.toml', containerdConfig({ release, runtime, cniPlugins, systemdCgroup: init === 'systemd' }));
  await write('crictl.yaml', 'timeout: 30\n');
  await write('node.env', shellVariables(nodeVariables(boot)));
  await write('command.env', shellVariables(boot.env));
  await write('command.sh', `exec ${boot.command.map(quoted).join(' ')}\n`);
}

function nodeVariables(boot: BootFiles): Record<string, string> {
  const { parts } = boot;
  const path = [
    join(scriptsFolder(), 'bin'),
    ...parts.programs,
    dirname(process.execPath),
    process.env['PATH'] ?? '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
    parts.applets,
  ];
  return {
    NODE_INIT: parts.init,
    NODE_KERNEL: parts.kernel.name,
    NODE_SYSTEMD: parts.systemd,
    NODE_SCRIPTS: scriptsFolder(),
    NODE_APPLETS: parts.applets,
    NODE_MODULES: parts.kernel.modules,
    NODE_IMAGES: parts.images,
    NODE_OUT_ON_HOST: boot.outDir,
    NODE_CWD: boot.cwd,
    // A path with a blank would become two. Such a checkout must be in a folder that the node does not hide.
    NODE_HOST_FOLDERS: [packageRoot(), boot.cwd, cacheRoot(), dirname(process.execPath)].join(' '),
    NODE_PATH: path.join(':'),
    NODE_TERMINAL: boot.terminal ? '1' : '0',
    NODE_STDIN: boot.stdin ? '1' : '0',
    NODE_CONTAINERD: boot.containerd ? '1' : '0',
    NODE_OUT: outFolderInside,
    HOME: '/run/node/home',
    USER: 'root',
    TMPDIR: '/tmp',
    LANG: process.env['LANG'] ?? 'C.UTF-8',
    TERM: process.env['TERM'] ?? 'dumb',
    CONTAINERD_VERSION: parts.containerdVersion,
    CONTAINERD_ADDRESS: containerdSocket,
    CONTAINER_RUNTIME_ENDPOINT: `unix://${containerdSocket}`,
    IMAGE_SERVICE_ENDPOINT: `unix://${containerdSocket}`,
    CRI_CONFIG_FILE: '/run/node/boot/crictl.yaml',
    OCI_RUNTIME: parts.runtime,
    OCI_RUNTIME_VERSION: parts.runtimeVersion,
  };
}
