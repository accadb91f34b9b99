import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Child, Children } from './children.ts';
import { Connection } from './client/connection.ts';
import { version } from './operations.ts';
import { connectWhenThere } from './sockets.ts';
import { median, rounded } from './statistics.ts';

export interface Shim {
  readonly child: Child;
  readonly socket: string;
}

/** Starts the shim as it is shipped, in front of this backend. Its log goes to a file, at the level that is the default. */
function spawnShim(children: Children, name: string, backend: string, cgroupRoot: string): Shim {
  const socket = children.path(`${name}.sock`);
  const args = ['--listen', `unix://${socket}`, '--container-runtime-endpoint', `unix://${backend}`];
  const folders = ['--cgroup-root', cgroupRoot, '--kubelet-root', children.path('kubelet')];
  return {
    child: children.spawn(name, process.execPath, [builtFile('cri-resize-shim.js'), ...args, ...folders]),
    socket,
  };
}

/** The same, up and answering. */
export async function startShim(children: Children, name: string, backend: string, cgroupRoot: string): Promise<Shim> {
  const shim = spawnShim(children, name, backend, cgroupRoot);
  const connection = await shim.child.until(connectWhenThere(shim.socket));
  await shim.child.until(connection.call(version));
  connection.close();
  return shim;
}

const STARTS = 9;

/** Milliseconds from starting the process to its first answer: the median of several starts, one after the other. */
export async function startTime(children: Children, backend: string, cgroupRoot: string): Promise<number> {
  const times: number[] = [];
  for (let index = 0; index < STARTS; index += 1) {
    const begin = performance.now();
    const { child } = await startShim(children, `start-${index}`, backend, cgroupRoot);
    times.push(performance.now() - begin);
    await child.stop();
  }
  return rounded(median(times), 1);
}

/** A file of dist/, where this code is bundled to, too. */
export function builtFile(name: string): string {
  for (let folder = dirname(fileURLToPath(import.meta.url)); ; folder = dirname(folder)) {
    const file = join(folder, name);
    if (existsSync(file)) return file;
    if (folder === dirname(folder)) throw new Error(`${name} is missing from dist/: npm run build`);
  }
}

/** The two ways to the same backend, one connection each: kubelet has one, too. */
export async function openBoth(backend: string, shim: Shim): Promise<{ direct: Connection; shim: Connection }> {
  return { direct: await Connection.open(backend), shim: await Connection.open(shim.socket) };
}
