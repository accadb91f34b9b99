import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { execa } from 'execa';
import { wallTime } from '../../core/concurrency/index.ts';
import { OWN_NODE } from '../node/index.ts';

/** Operations on the host, outside the pod. */
export interface Host {
  /**
   * Runs the staged resizectl on the host in its own systemd unit, so that neither the restart of kubelet nor the end of the pod stops
   * it. Returns its exit code and output. Rejects if systemd cannot start it.
   * @param after `unstage`: systemd removes the staged files once it has ended, also if this pod no longer runs
   */
  resizectl(args: readonly string[], after?: 'unstage'): Promise<CommandResult>;
  /** Waits until no resizectl of an earlier pod runs on the host. Rejects with the reason of the signal. */
  idle(signal: AbortSignal): Promise<void>;
  /** Start time of the kubelet process in milliseconds since the epoch; undefined if it does not run. */
  kubeletStart(): Promise<number | undefined>;
  /** Returns whether the shim runs. Rejects if systemd does not answer. */
  shim(): Promise<ShimRun>;
}

export interface ShimRun {
  readonly isActive: boolean;
  /** The ID that systemd has assigned to this run of the service: each start has another one. Empty: unknown. */
  readonly run: string;
}

export interface CommandResult {
  readonly code: number;
  readonly lines: readonly string[];
}

export interface HostOptions {
  /** Folder of the staged program, as a path on the host. */
  readonly folder: string;
  /** All staged files and folders. */
  readonly staged: readonly string[];
  readonly kubeletUnit: string;
  readonly say: (line: string) => void;
}

const UNIT = 'cri-resize-shim-installer.service';
const SHIM = 'cri-resize-shim.service';
const AGAIN_MS = 500;
const QUERY_MS = 10_000;

/** Enters the mount namespace of the host. With hostPID, its programs need nothing else. */
const onHost = ['--target', '1', '--mount', '--'];

/**
 * The transient unit. `--collect` removes it also after a failure. RuntimeMaxSec is longer than all time limits of resizectl together:
 * if it hangs, systemd stops it, and TimeoutStopSec leaves time for the rollback.
 */
const unit = [
  'systemd-run',
  '--quiet',
  '--wait',
  '--pipe',
  '--collect',
  `--unit=${UNIT}`,
  '--service-type=exec',
  '--description=Install or uninstall cri-resize-shim',
  '--property=RuntimeMaxSec=20min',
  '--property=TimeoutStopSec=10min',
];

/** Quotes a word of a command in a unit: systemd.syntax(7), and the variables of systemd.service(5). */
const quoted = (word: string): string => `"${word.replaceAll(/[\\"]/g, '\\$&').replaceAll('$', '$$$$')}"`;

/** The property of the unit that removes files and folders when it has ended. */
export const removalAfter = (paths: readonly string[]): string =>
  `--property=ExecStopPost=/bin/rm -rf -- ${paths.map(quoted).join(' ')}`;

export function thisHost({ folder, staged, kubeletUnit, say }: HostOptions): Host {
  const program = [join(folder, OWN_NODE), join(folder, 'dist/resizectl.js')];
  return {
    async resizectl(args, after) {
      const removal = after === 'unstage' ? [removalAfter(staged)] : [];
      const command = [...onHost, ...unit, ...removal, '--', ...program, ...args];
      const running = execa('nsenter', command, { reject: false, stdin: 'ignore', all: true, buffer: false });
      const lines: string[] = [];
      for await (const line of running.iterable({ from: 'all' })) {
        say(line);
        lines.push(line);
      }
      const { exitCode, shortMessage } = await running;
      if (exitCode === undefined) throw new Error(shortMessage ?? 'nsenter was killed');
      return { code: exitCode, lines };
    },

    async idle(signal) {
      for (;;) {
        const { ActiveState: state = '' } = await properties(UNIT, ['ActiveState']);
        if (['inactive', 'failed'].includes(state)) return;
        // systemd notifies only the process that started a unit.
        await delay(AGAIN_MS, undefined, { signal });
      }
    },

    async kubeletStart() {
      const { MainPID: pid = '0', ExecMainStartTimestampMonotonic: since = '0' } = await properties(kubeletUnit, [
        'MainPID',
        'ExecMainStartTimestampMonotonic',
      ]);
      if (pid === '0' || since === '0') return undefined;
      const age = process.hrtime.bigint() / 1000n - BigInt(since);
      return wallTime() - Number(age / 1000n);
    },

    async shim() {
      // Not NRestarts: the fallback of the unit starts the service again, which systemd counts as no restart (docs/bypass.md).
      const { ActiveState: state = '', InvocationID: run = '' } = await properties(SHIM, [
        'ActiveState',
        'InvocationID',
      ]);
      return { isActive: state === 'active', run };
    },
  };
}

/** Returns properties of a unit on the host. Rejects if systemd does not answer. */
async function properties(unit: string, names: readonly string[]): Promise<Readonly<Record<string, string>>> {
  const command = [...onHost, 'systemctl', 'show', `--property=${names.join(',')}`, '--', unit];
  const { stdout } = await execa('nsenter', command, { timeout: QUERY_MS, stdin: 'ignore' });
  const found: Record<string, string> = {};
  for (const line of stdout.split('\n')) {
    const [name = '', value = ''] = line.split(/=(.*)/s);
    found[name] = value;
  }
  return found;
}
