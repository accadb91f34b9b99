import { release } from 'node:os';
import { defaultOf } from '../config/index.ts';
import { type Finding, type Node, diagnose, worstOf } from '../install/index.ts';
import { Exit, defaultKubeletUnit } from './commands.ts';
import type { Context } from './context.ts';
import { objectText } from './objects.ts';
import { socketPath } from './socket.ts';
import { table } from './text.ts';

export interface DoctorOptions {
  readonly listen?: string;
  readonly containerRuntimeEndpoint?: string;
  readonly stateFolder?: string;
  readonly kubeletUnit?: string;
}

/** Of doctor alone: what else ends with these has another meaning. */
const exits = { ok: Exit.done, warning: Exit.failed, failed: Exit.usage } as const;

/** `resizectl doctor`. Gives the exit code. */
export async function doctor(
  { output, print }: Pick<Context, 'output' | 'print'>,
  options: DoctorOptions,
): Promise<Exit> {
  const findings = await diagnose(thisNode(options));
  if (output === 'json' || output === 'yaml') print(objectText({ checks: findings }, output));
  else print(doctorText(findings));
  return exits[worstOf(findings)];
}

function thisNode(options: DoctorOptions): Node {
  return {
    cgroupRoot: defaultOf('cgroupRoot'),
    containerd: socketPath(
      '--container-runtime-endpoint',
      options.containerRuntimeEndpoint ?? defaultOf('containerRuntimeEndpoint'),
    ),
    listen: socketPath('--listen', options.listen ?? defaultOf('listen')),
    stateFolder: options.stateFolder ?? defaultOf('stateFolder'),
    programFolder: '/usr/local/lib',
    kubeletUnit: options.kubeletUnit ?? defaultKubeletUnit,
    procRoot: '/proc',
    systemdFolder: '/run/systemd/system',
    kernel: release(),
    nodeVersion: process.versions.node,
    uid: process.geteuid?.() ?? -1,
  };
}

/** A line for each check; beneath, what to do. */
export function doctorText(findings: readonly Finding[]): string {
  const rows = findings.map(({ check, result, says }) => [check, result, says]);
  const cures = findings.filter(({ cure }) => cure !== '').map(({ check, cure }) => [`  ${check}:`, cure]);
  const todo = cures.length === 0 ? '' : `\nWhat to do:\n${table(cures)}`;
  return `${table([['CHECK', 'RESULT', 'FOUND'], ...rows])}${todo}`;
}
