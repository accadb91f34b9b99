import { realpathSync, statSync } from 'node:fs';
import { release } from 'node:os';
import { dirname, join } from 'node:path';
import { isSea } from 'node:sea';
import { defaultOf } from '../../config/index.ts';
import { type Node, OWN_NODE, type Program, nodeProgramOf } from '../../install/node/index.ts';
import { defaultKubeletUnit } from '../command-table.ts';
import { socketPath } from '../socket.ts';

/** Paths on the node that differ from the defaults. */
export interface NodeOptions {
  readonly listen?: string;
  readonly containerRuntimeEndpoint?: string;
  readonly stateFolder?: string;
  readonly kubeletUnit?: string;
}

/** Upper bound for the size of the program folder without Node, in bytes. */
const FOLDER_BYTES = 100 * 1024 * 1024;

/** The folder of the running program: the parent of dist/ in a checkout or in the self-contained folder. */
const ownFolder = (): string => dirname(dirname(realpathSync(process.argv[1] ?? '')));

/** The running program as the source of an installation into the folder `to`. */
export function thisProgram(to: string): Program {
  if (isSea()) return { kind: 'executable', file: process.execPath };
  const folder = ownFolder();
  return { kind: 'folder', folder, ...nodeProgramOf(folder, to), arch: process.arch };
}

/** Size of the program in bytes, including its own Node if it has one. */
function programBytes(): number {
  if (isSea()) return statSync(process.execPath).size;
  const { nodeFrom = join(ownFolder(), OWN_NODE) } = nodeProgramOf(ownFolder(), '/');
  return FOLDER_BYTES + (statSync(nodeFrom, { throwIfNoEntry: false })?.size ?? 0);
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
    // An upgrade keeps the old and the new program for a while.
    programSpace: 2 * programBytes(),
    kubeletUnit: options.kubeletUnit ?? defaultKubeletUnit,
    procRoot: '/proc',
    systemdFolder: '/run/systemd/system',
    proxyProgram: '/usr/lib/systemd/systemd-socket-proxyd',
    kernel: release(),
    nodeVersion: process.versions.node,
    uid: process.geteuid?.() ?? -1,
  };
}
