import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { cniConfig, containerdConfig, containerdSocket } from './containerd-config.ts';
import { cacheRoot, packageRoot } from '../../../tools/download/places.ts';
import { scriptsFolder } from './scripts.ts';
import type { NodeParts } from './prepare.ts';

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
    NODE_SYSTEMD: parts.systemd ?? '',
    NODE_SCRIPTS: scriptsFolder(),
    NODE_APPLETS: parts.applets,
    NODE_MODULES: parts.kernel.modules,
    NODE_IMAGES: parts.images,
    NODE_OUT_ON_HOST: boot.outDir,
    NODE_CWD: boot.cwd,
    // A path with a blank would become two. Such a checkout has to be where nothing is hidden.
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
