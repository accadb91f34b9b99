import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { runtimePath } from '../../src/runtime/backend.ts';
import { decode, encode } from '../../src/runtime/codec.ts';
import { Connection } from '../client/connection.ts';
import { canonicalResponse } from '../load/canonical.ts';
import type { CgroupFile, StoredAnswer } from '../load/recording.ts';

const CGROUPS = '/sys/fs/cgroup';

/** The files that the shim reads. */
const FILES = [
  ...['cgroup.controllers', 'cgroup.events', 'cgroup.procs', 'cpu.max', 'cpu.weight', 'cpu.stat', 'cpu.pressure'],
  ...['cpuset.cpus', 'cpuset.mems', 'memory.current', 'memory.events', 'memory.high', 'memory.low', 'memory.max'],
  ...['memory.min', 'memory.oom.group', 'memory.pressure', 'memory.stat', 'memory.swap.current', 'memory.swap.max'],
  'pids.max',
];

interface VerboseInfo {
  readonly config?: { readonly linux?: { readonly cgroup_parent?: string } };
}

/** Requests from containerd everything that the shim requests at its start. Reads all pod and container cgroups. */
export async function nodeState(
  runtime: string,
): Promise<{ readonly answers: readonly StoredAnswer[]; readonly cgroups: readonly CgroupFile[] }> {
  const connection = await Connection.open(runtime);
  const answers: StoredAnswer[] = [];
  const ask = async (method: string, request: Buffer): Promise<Buffer> => {
    const path = runtimePath(method);
    const response = canonicalResponse(path, await connection.call({ path, request }));
    answers.push({ path, request, response });
    return response;
  };
  const none = Buffer.alloc(0);
  await ask('Version', none);
  await ask('Status', none);
  await ask('Status', encode('StatusRequest', { verbose: true }));
  await ask('RuntimeConfig', none);
  const { items } = decode('ListPodSandboxResponse', await ask('ListPodSandbox', none));
  const { containers } = decode('ListContainersResponse', await ask('ListContainers', none));
  const parents = new Map<string, string>();
  for (const { id } of items) {
    const response = await ask(
      'PodSandboxStatus',
      encode('PodSandboxStatusRequest', { pod_sandbox_id: id, verbose: true }),
    );
    const { info } = decode('PodSandboxStatusResponse', response);
    const { config } = JSON.parse(info['info'] ?? '{}') as VerboseInfo;
    parents.set(id, config?.linux?.cgroup_parent ?? '');
  }
  for (const { id } of containers)
    await ask('ContainerStatus', encode('ContainerStatusRequest', { container_id: id, verbose: true }));
  connection.close();
  const folders = new Set([
    ...['/', '/kubepods', '/kubepods/burstable', '/kubepods/besteffort'],
    ...parents.values(),
    ...containers.map(({ id, pod_sandbox_id }) => join(parents.get(pod_sandbox_id) ?? '', id)),
  ]);
  return { answers, cgroups: [...folders].flatMap(filesOf) };
}

function filesOf(cgroup: string): CgroupFile[] {
  return FILES.flatMap((name) => {
    const content = contentOf(join(CGROUPS, cgroup, name));
    return content === undefined ? [] : [{ cgroup, name, content }];
  });
}

/** Undefined for a file that this cgroup or kernel does not have. */
function contentOf(file: string): Buffer | undefined {
  try {
    return readFileSync(file);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'EOPNOTSUPP') return undefined;
    throw error;
  }
}
