import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Child, Children } from '../children.ts';
import { runtimeCall } from '../operations.ts';
import { connectWhenThere } from '../sockets.ts';
import { writeState } from './files.ts';
import { writeRecords } from './records.ts';
import { running } from './stored-node.ts';
import { serveTask } from './task-service.ts';

/** Loads only the plugins that CRI needs, and none that uses paths outside its folder. */
const disabled = [
  'snapshotter.v1.btrfs',
  'snapshotter.v1.zfs',
  'snapshotter.v1.devmapper',
  'snapshotter.v1.blockfile',
  'tracing.processor.v1.otlp',
  'monitor.task.v1.cgroups',
  'nri.v1.nri',
];

const configOf = (folder: string): string => `version = 2
root = "${folder}/root"
state = "${folder}/state"
disabled_plugins = [${disabled.map((name) => `"io.containerd.${name}"`).join(', ')}]
[grpc]
address = "${folder}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "${folder}/opt"
`;

export interface Containerd {
  readonly child: Child;
  readonly socket: string;
}

/** Interval of the checks whether the CRI service is up. containerd's socket answers earlier. */
const ASK_AGAIN_MS = 20;
const START_TIMEOUT_MS = 30_000;

/** Starts a separate containerd without pods. Waits until its CRI service answers. */
export async function startEmpty(children: Children, program: string, name: string): Promise<Containerd> {
  const folder = children.path(name);
  await mkdir(folder);
  await writeFile(join(folder, 'containerd.toml'), configOf(folder));
  return start(children, program, name);
}

/**
 * Starts a containerd with the pods and containers of {@link ./stored-node.ts}. They are in its database and in its
 * files, and one counts as running. So a real containerd answers, and takes its real time.
 */
export async function startFull(children: Children, program: string, name: string): Promise<Containerd> {
  const folder = children.path(name);
  const first = await startEmpty(children, program, name);
  await writeRecords(first.socket, folder);
  await first.child.stop();
  const taskSocket = join(folder, 'task.sock');
  await serveTask(taskSocket, running.id);
  await writeState({ root: join(folder, 'root'), state: join(folder, 'state'), taskSocket });
  return start(children, program, name);
}

async function start(children: Children, program: string, name: string): Promise<Containerd> {
  const folder = children.path(name);
  const child = children.spawn(name, program, ['--config', join(folder, 'containerd.toml')]);
  const socket = join(folder, 'containerd.sock');
  await child.until(untilServing(socket));
  return { child, socket };
}

async function untilServing(socket: string): Promise<void> {
  const connection = await connectWhenThere(socket);
  const deadline = performance.now() + START_TIMEOUT_MS;
  for (;;) {
    try {
      await connection.call(runtimeCall('Status'));
      connection.close();
      return;
    } catch (error) {
      if (performance.now() > deadline) throw error;
      await delay(ASK_AGAIN_MS);
    }
  }
}
