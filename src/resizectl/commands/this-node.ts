import { realpathSync, statSync } from 'node:fs';
import { release } from 'node:os';
import { dirname, join } from 'node:path';
import { isSea } from 'node:sea';
import { defaultOf } from '../../config/index.ts';
import { type Node, OWN_NODE, type Program, nodeProgramOf } from '../../install/node/index.ts';
import { defaultKubeletUnit } from '../command-table.ts';
import { socketPath } from '../socket.ts';

/** Where things are on a node, if not at their usual places. */
export interface NodeOptions {
  readonly listen?: string;
  readonly containerRuntimeEndpoint?: string;
  readonly stateFolder?: string;
  readonly kubeletUnit?: string;
}

/** A folder of the program with its parts, in bytes, without a Node of its own. */
const FOLDER_BYTES = 100 * 1024 * 1024;

/** The folder of the program that runs here: dist/.. of a checkout, or of the self-contained folder. */
const ownFolder = (): string => dirname(dirname(realpathSync(process.argv[1] ?? '')));

/** What runs here, to be put into the folder `to`. */
export function thisProgram(to: string): Program {
  if (isSea()) return { kind: 'executable', file: process.execPath };
  const folder = ownFolder();
  return { kind: 'folder', folder, ...nodeProgramOf(folder, to), arch: process.arch };
}

/** The program with the Node that goes along with it, if one does. */
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
    // Twice: an upgrade has both for a while.
    programRoom: 2 * programBytes(),
    kubeletUnit: options.kubeletUnit ?? defaultKubeletUnit,
    procRoot: '/proc',
    systemdFolder: '/run/systemd/system',
    kernel: release(),
    nodeVersion: process.versions.node,
    uid: process.geteuid?.() ?? -1,
  };
}
