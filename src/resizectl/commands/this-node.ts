import { realpathSync, statSync } from 'node:fs';
import { release } from 'node:os';
import { dirname, join } from 'node:path';
import { isSea } from 'node:sea';
import { ConfigError, type ConfigKey, defaultOf, effectiveSettings, MiB } from '../../core/index.ts';
import {
  findKubeletUnit,
  findPrefix,
  hasProgram,
  KUBELET_FILES,
  type Node,
  nodeProgramOf,
  OWN_NODE,
  type Program,
  runtimeOfKubelet,
  serviceFlags,
  USUAL_UNIT,
} from '../../install/index.ts';
import { socketPath } from '../client.ts';

/** Paths on the node that differ from the defaults. */
export interface NodeOptions {
  readonly listen?: string;
  readonly containerRuntimeEndpoint?: string;
  readonly stateFolder?: string;
  readonly kubeletUnit?: string;
  /** The folder below which the program is. */
  readonly prefix?: string;
}

/** Environment file of the service. */
export const FLAGS_FILE = '/etc/default/cri-resize-shim';
/** The file with the socket that the shim has used last. */
export const BYPASS_FILE = '/var/lib/cri-resize-shim-bypass/target';
export const CONFIG_FILE = '/etc/cri-resize-shim/config.yaml';

/** Upper bound for the size of the program folder without Node, in bytes. */
const FOLDER_BYTES = 100 * MiB;

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
    programFolder: join(options.prefix ?? '/usr/local', 'lib'),
    // An upgrade keeps the old and the new program for a while.
    programSpace: 2 * programBytes(),
    flagsFile: FLAGS_FILE,
    configFile: CONFIG_FILE,
    kubeletUnit: options.kubeletUnit ?? USUAL_UNIT,
    kubeletFiles: KUBELET_FILES,
    procRoot: '/proc',
    systemdFolder: '/run/systemd/system',
    proxyProgram: '/usr/lib/systemd/systemd-socket-proxyd',
    kernel: release(),
    nodeVersion: process.versions.node,
    uid: process.geteuid?.() ?? -1,
  };
}

/**
 * The node, with what the options leave open as it is found: the unit of kubelet, its runtime, and the folder of the
 * program. Throws UsageError.
 */
export async function foundNode(options: NodeOptions): Promise<Node> {
  const kubeletUnit = options.kubeletUnit ?? (await findKubeletUnit());
  const prefix = await findPrefix((folder) => hasProgram(join(folder, 'lib/cri-resize-shim')));
  const node = thisNode({ ...options, kubeletUnit, prefix });
  if (options.containerRuntimeEndpoint !== undefined) return node;
  return { ...node, containerd: (await runtimeOfKubelet(node, BYPASS_FILE)) ?? node.containerd };
}

/**
 * The node as the configuration of the service describes it. Options take precedence. With an invalid configuration,
 * the defaults apply: a check reports it. Throws UsageError.
 */
export async function configuredNode(options: NodeOptions): Promise<Node> {
  return foundNode({ ...(await validSettings()), ...options });
}

async function validSettings(): Promise<NodeOptions> {
  try {
    return await serviceSettings(await serviceFlags(FLAGS_FILE));
  } catch (error) {
    if (error instanceof ConfigError) return {};
    throw error;
  }
}

/** The service settings that the installation uses. */
export interface ServiceSettings {
  readonly listen: string;
  /** Absent if no flag and no file sets it: then the runtime of kubelet is used. */
  readonly containerRuntimeEndpoint?: string;
  readonly stateFolder: string;
  readonly kubeconfig: string;
}

/** Returns the settings of a service with these flags. Throws ConfigError. */
export async function serviceSettings(flags: readonly string[]): Promise<ServiceSettings> {
  const { settings } = await effectiveSettings(flags);
  const of = (key: ConfigKey): string => String(settings.find((setting) => setting.key === key)?.value);
  const isSet = settings.some(({ key, from }) => key === 'containerRuntimeEndpoint' && from !== 'default');
  return {
    listen: of('listen'),
    ...(isSet && { containerRuntimeEndpoint: of('containerRuntimeEndpoint') }),
    stateFolder: of('stateFolder'),
    kubeconfig: of('kubeconfig'),
  };
}
