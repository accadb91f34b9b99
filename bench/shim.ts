import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { builtFile, repositoryFile } from './built-file.ts';
import type { Child, Children } from './children.ts';
import { version } from './operations.ts';
import { connectWhenThere } from './sockets.ts';

export interface Shim {
  readonly child: Child;
  readonly socket: string;
  /** The socket of the resize API. */
  readonly resizeSocket: string;
}

export interface ShimPlaces {
  /** The socket of the containerd behind the shim. */
  readonly backend: string;
  readonly cgroupRoot: string;
  /** The file for a CPU profile at the end, if requested. */
  readonly profile?: string | undefined;
  /** The folder of the journal. Default: a separate one. */
  readonly stateFolder?: string;
  /** The kubelet root. Default: a folder that all shims of the run share. */
  readonly kubeletRoot?: string;
  /** The folder of `npm run package` to run instead of this build. */
  readonly packaged?: string;
  /** The single executable to run instead of this build. */
  readonly executable?: string;
  /** Flags in addition to those for these places. */
  readonly flags?: readonly string[];
}

/** Returns the environment variables that the systemd unit sets for the shim. */
function unitEnvironment(): Record<string, string> {
  const unit = readFileSync(repositoryFile('systemd/cri-resize-shim.service'), 'utf8');
  const settings = [...unit.matchAll(/^Environment=(.*)$/gm)].flatMap(([, line = '']) => line.split(' '));
  return Object.fromEntries(settings.map((setting) => setting.split('=', 2) as [string, string]));
}

const PROGRAM = 'cri-resize-shim.js';

/** Starts the shipped shim. Its log goes to a file, with the default level. */
export function spawnShim(
  children: Children,
  name: string,
  places: ShimPlaces,
  environment: Readonly<Record<string, string>> = {},
): Shim {
  const { backend, cgroupRoot, profile, packaged, executable, flags = [] } = places;
  const stateFolder = places.stateFolder ?? children.path(`${name}-state`);
  const socket = children.path(`${name}.sock`);
  const args = ['--listen', `unix://${socket}`, '--container-runtime-endpoint', `unix://${backend}`];
  const folders = ['--cgroup-root', cgroupRoot, '--kubelet-root', places.kubeletRoot ?? children.path('kubelet')];
  const resizeSocket = `${socket}.resize`;
  const state = ['--state-folder', stateFolder, '--resize-listen', `unix://${resizeSocket}`];
  const profiling = profile === undefined ? [] : ['--cpu-prof', '--cpu-prof-dir', profile];
  // The packaged program is measured as it is.
  const preloading = packaged === undefined ? ['--import', builtFile('tools/bench-inside.js')] : [];
  const program = packaged === undefined ? builtFile(PROGRAM) : join(packaged, 'dist', PROGRAM);
  const own = [...args, ...folders, ...state, ...flags];
  const node = [...profiling, ...preloading, program];
  const all = { ...unitEnvironment(), CRI_BENCH_CGROUP_ROOT: cgroupRoot, ...environment };
  const child =
    executable === undefined
      ? children.spawn(name, process.execPath, [...node, ...own], all)
      : children.spawn(name, executable, own, all);
  return { child, socket, resizeSocket };
}

/** Starts the shipped shim. Resolves when it answers. */
export async function startShim(
  children: Children,
  name: string,
  places: ShimPlaces,
  environment: Readonly<Record<string, string>> = {},
): Promise<Shim> {
  const shim = spawnShim(children, name, places, environment);
  const connection = await shim.child.until(connectWhenThere(shim.socket));
  await shim.child.until(connection.call(version));
  connection.close();
  return shim;
}
