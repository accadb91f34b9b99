import { constants, existsSync, readFileSync } from 'node:fs';
import { access, mkdir, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { NodeError } from '../../../tools/download/errors.ts';
import { packageRoot } from '../../../tools/download/places.ts';

/** Whether this machine itself can replace the node, or the list of everything that it lacks. */
export type Host =
  | { readonly usable: true; readonly socket: string; readonly containerdVersion: string }
  | { readonly usable: false; readonly lacks: readonly string[] };

const cgroupControllers = '/sys/fs/cgroup/cgroup.controllers';

export async function detectHost(
  socket = process.env['CONTAINERD_ADDRESS'] ?? '/run/containerd/containerd.sock',
): Promise<Host> {
  const lacks: string[] = [];
  const controllers = existsSync(cgroupControllers)
    ? readFileSync(cgroupControllers, 'utf8').trim().split(' ')
    : undefined;
  if (controllers === undefined) lacks.push('no cgroup v2 at /sys/fs/cgroup');
  else if (!controllers.includes('memory')) lacks.push(`${cgroupControllers} has no memory controller`);
  const reachable = await access(socket, constants.R_OK | constants.W_OK).then(
    () => true,
    () => false,
  );
  if (!reachable) lacks.push(`no containerd socket that can be opened at ${socket}`);
  if (lacks.length > 0) return { usable: false, lacks };
  const { stdout, exitCode } = await execa('ctr', ['--address', socket, 'version'], { reject: false });
  const version = /Server:\s+Version:\s+v?(\S+)/.exec(stdout)?.[1];
  if (exitCode !== 0 || version === undefined)
    return { usable: false, lacks: [`"ctr version" gets no answer at ${socket}`] };
  return { usable: true, socket, containerdVersion: version };
}

/** Runs the command on this machine with the variables of the node. Returns its exit code. */
export async function runOnHost(command: readonly string[], outDir?: string): Promise<number> {
  const host = await detectHost();
  if (!host.usable)
    throw new NodeError(`--host cannot be used: ${host.lacks.join('; ')}. Leave --host out to boot a test node.`);
  const out = outDir ?? (await mkdtemp(join(tmpdir(), 'cri-resize-shim-out-')));
  await mkdir(out, { recursive: true });
  const [file = '/bin/sh', ...args] = command;
  const result = await execa(file, args, {
    cwd: packageRoot(),
    stdio: 'inherit',
    reject: false,
    env: {
      NODE_OUT: out,
      CONTAINERD_VERSION: host.containerdVersion,
      CONTAINERD_ADDRESS: host.socket,
      CONTAINER_RUNTIME_ENDPOINT: `unix://${host.socket}`,
      IMAGE_SERVICE_ENDPOINT: `unix://${host.socket}`,
    },
  });
  return result.exitCode ?? 1;
}
