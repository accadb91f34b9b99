import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { containers, kernelFiles, pods, running, storedResources } from './stored-node.ts';

/** containerd's files about pods and containers. */

const CREATED_AT = '1767225600000000000';
const FINISHED_AT = '1767225700000000000';

export interface StoredPlaces {
  readonly root: string;
  readonly state: string;
  /** The socket of the running container's task service. */
  readonly taskSocket: string;
}

/** Writes the state of every container: one runs, the others have ended. */
export async function writeState({ root, state, taskSocket }: StoredPlaces): Promise<void> {
  const cri = join(root, 'io.containerd.grpc.v1.cri');
  await Promise.all(pods.map(({ id }) => mkdir(join(cri, 'sandboxes', id), { recursive: true })));
  for (const { id } of containers) {
    const folder = join(cri, 'containers', id);
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, 'status'), statusOf(id === running.id));
  }
  // The bundle of a task as a runtime's shim leaves it. Only the address of the shim matters.
  const tasks = 'io.containerd.runtime.v2.task/k8s.io';
  const [bundle, work] = [join(state, tasks, running.id), join(root, tasks, running.id)];
  await mkdir(bundle, { recursive: true });
  await mkdir(work, { recursive: true });
  await symlink(work, join(bundle, 'work'));
  await writeFile(join(bundle, 'config.json'), '{}');
  const bootstrap = { version: 3, address: taskSocket, protocol: 'grpc' };
  await writeFile(join(bundle, 'bootstrap.json'), JSON.stringify(bootstrap));
}

/** Writes JSON by hand, because nanoseconds do not fit into a number. */
function statusOf(runs: boolean): string {
  const times = `"CreatedAt":${CREATED_AT},"StartedAt":${CREATED_AT},"FinishedAt":${runs ? '0' : FINISHED_AT}`;
  const pid = runs ? process.pid : 0;
  return `{"Version":"v1","Pid":${pid},${times},"Resources":${JSON.stringify({ linux: storedResources })}}`;
}

/** Writes the cgroups of the running container and its pod below `root`, as files on any file system. */
export async function writeCgroups(root: string): Promise<void> {
  const pod = join(root, running.pod.cgroupParent);
  const container = join(pod, running.id);
  await mkdir(container, { recursive: true });
  for (const folder of [pod, container]) {
    for (const [file, value] of Object.entries(kernelFiles)) await writeFile(join(folder, file), `${value}\n`);
  }
}
