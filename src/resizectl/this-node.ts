import { release } from 'node:os';
import { defaultOf } from '../config/index.ts';
import type { Node } from '../install/index.ts';
import { defaultKubeletUnit } from './commands.ts';
import { socketPath } from './socket.ts';

/** Where things are on a node, if not at their usual places. */
export interface NodeOptions {
  readonly listen?: string;
  readonly containerRuntimeEndpoint?: string;
  readonly stateFolder?: string;
  readonly kubeletUnit?: string;
}

/** The node that resizectl runs on. Throws UsageError. */
export function thisNode(options: NodeOptions): Node {
  return {
    cgroupRoot: defaultOf('cgroupRoot'),
    containerd: socketPath(
      '--container-runtime-endpoint',
      options.containerRuntimeEndpoint ?? defaultOf('containerRuntimeEndpoint'),
    ),
    listen: socketPath('--listen', options.listen ?? defaultOf('listen')),
    resizeListen: socketPath('--resize-listen', defaultOf('resizeListen')),
    stateFolder: options.stateFolder ?? defaultOf('stateFolder'),
    programFolder: '/usr/local/lib',
    kubeletUnit: options.kubeletUnit ?? defaultKubeletUnit,
    procRoot: '/proc',
    systemdFolder: '/run/systemd/system',
    kernel: release(),
    nodeVersion: process.versions.node,
    uid: process.geteuid?.() ?? -1,
  };
}
