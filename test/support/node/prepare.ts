import { join } from 'node:path';
import { obtainBuilt } from './parts/built-programs.ts';
import { criTools } from './parts/cri-tools.ts';
import { upstreamVersion } from './parts/debian.ts';
import { obtainParts } from './parts/parts.ts';
import type { ContainerdRelease, DiskParts, Init, KernelName, Runtime } from './parts/parts.ts';
import { cacheRoot } from '../../../tools/download/places.ts';
import { silent } from '../../../tools/download/progress.ts';
import type { Progress } from '../../../tools/download/progress.ts';

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
  /** Programs, units and libraries of systemd, if it is the first process. */
  readonly systemd: string | undefined;
  /** Folders for PATH with containerd, ctr, the runtime and, if asked for, crictl and critest. */
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
    obtainParts(cache, choice.containerd, choice.runtime, init, kernelName, progress),
    choice.criTools === true ? obtainBuilt(criTools, progress) : undefined,
  ]);
  const { tools, containerd, runtime, systemd } = packaged;
  const program = choice.runtime === 'crun' ? 'crun' : 'runc';
  return {
    containerd: choice.containerd,
    runtime: choice.runtime,
    init,
    systemd: systemd?.folder,
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
