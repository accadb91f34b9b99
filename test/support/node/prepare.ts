import { join } from 'node:path';
import { obtainCriTools } from './parts/cri-tools.ts';
import type { CriTools } from './parts/cri-tools.ts';
import { upstreamVersion } from './parts/debian.ts';
import { obtainParts } from './parts/parts.ts';
import type { ContainerdRelease, Init, Runtime } from './parts/parts.ts';
import { cacheRoot } from '../../../tools/download/places.ts';
import { silent } from '../../../tools/download/progress.ts';
import type { Progress } from '../../../tools/download/progress.ts';

export interface NodeChoice {
  readonly containerd: ContainerdRelease;
  readonly runtime: Runtime;
  /** Default: `plain`. */
  readonly init?: Init;
}

/** Everything on disk that a boot needs. */
export interface NodeParts extends NodeChoice {
  readonly init: Init;
  /** The versions that the packages have, such as 2.1.9 for the release 2.1. */
  readonly containerdVersion: string;
  readonly runtimeVersion: string;
  readonly kernelVersion: string;
  readonly kernel: string;
  readonly modules: string;
  readonly applets: string;
  readonly images: string;
  readonly cniPlugins: string;
  readonly runtimeProgram: string;
  /** Programs, units and libraries of systemd, if it is the first process. */
  readonly systemd: string | undefined;
  /** Folders for PATH with containerd, ctr, the runtime, crictl and critest. */
  readonly programs: readonly string[];
  readonly criTools: CriTools;
}

/** Makes sure that all parts of the node are in the cache. Quick if they are. */
export async function prepareNode(choice: NodeChoice, progress: Progress = silent): Promise<NodeParts> {
  const cache = cacheRoot();
  const { init = 'plain' } = choice;
  const [packaged, criTools] = await Promise.all([
    obtainParts(cache, choice.containerd, choice.runtime, init, progress),
    obtainCriTools(cache, progress),
  ]);
  if (!criTools.available) progress(criTools.reason);
  const { kernel, tools, containerd, runtime, systemd } = packaged;
  const program = choice.runtime === 'crun' ? 'crun' : 'runc';
  const version = (versions: Readonly<Record<string, string>>, name: string): string =>
    upstreamVersion(versions[name] ?? '');
  return {
    ...choice,
    init,
    systemd: systemd?.folder,
    containerdVersion: version(containerd.versions, 'containerd'),
    runtimeVersion: version(runtime.versions, program),
    kernelVersion: version(kernel.versions, 'user-mode-linux'),
    kernel: join(kernel.folder, 'bin/linux.uml'),
    modules: join(kernel.folder, 'modules'),
    applets: join(tools.folder, 'applets'),
    images: join(tools.folder, 'images.tar'),
    cniPlugins: join(tools.folder, 'cni'),
    runtimeProgram: join(runtime.folder, 'bin', program),
    programs: [
      join(containerd.folder, 'bin'),
      join(runtime.folder, 'bin'),
      ...(criTools.available ? [join(criTools.part.folder, 'bin')] : []),
    ],
    criTools,
  };
}
