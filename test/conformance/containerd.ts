import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';
import { pauseImage } from '../support/node/index.ts';
import { ownPauseImage } from './images/images.ts';

const configFile = '/run/node/containerd.toml';
const hostsFolder = '/run/node/registries';

/**
 * Starts the node's containerd with all registries, also that of the pause image, mirrored by the one on `port`.
 * @param pause the pause image
 * @param amended returns the configuration file with further settings
 */
export async function startContainerd(
  port: number,
  pause = ownPauseImage,
  amended: (config: string) => string = (config) => config,
): Promise<void> {
  await mkdir(join(hostsFolder, '_default'), { recursive: true });
  await writeFile(join(hostsFolder, '_default/hosts.toml'), hostsToml(port));
  const config = await readFile(configFile, 'utf8');
  if (!config.includes(`"${pauseImage}"`)) throw new Error(`${configFile} does not name the pause image ${pauseImage}`);
  const ours = config.replaceAll(`"${pauseImage}"`, `"${pause}"`) + registryToml(config);
  await writeFile(configFile, amended(ours));
  await execa('node-containerd', ['start']);
}

/** Returns a variable that the node sets. */
export function required(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set: this part of the command runs in the test node only`);
  return value;
}

// Our registry replaces all others. It is also the `server`, so missing content is not fetched from elsewhere.
function hostsToml(port: number): string {
  const address = `http://127.0.0.1:${port}`;
  return `server = "${address}"\n[host."${address}"]\ncapabilities = ["pull", "resolve"]\n`;
}

function registryToml(config: string): string {
  const version = /^version = (\d+)$/m.exec(config)?.[1];
  if (version === undefined) throw new Error(`${configFile} names no version`);
  const plugin = Number(version) >= 3 ? 'io.containerd.cri.v1.images' : 'io.containerd.grpc.v1.cri';
  return `[plugins."${plugin}".registry]\nconfig_path = "${hostsFolder}"\n`;
}
