import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { execa } from 'execa';
import { OWN_NODE } from '../node/index.ts';

/** What is done on the host, outside of the pod. */
export interface Host {
  /**
   * Runs the staged resizectl on the host, as a unit of its own there: neither kubelet's restart nor the pod's end reaches it. Gives its
   * exit code and what it has said. Rejects when systemd cannot be told to.
   */
  resizectl(args: readonly string[]): Promise<Ended>;
  /** Resolves when none runs there any more: one that an earlier pod has begun, say. Rejects with the signal's reason. */
  idle(signal: AbortSignal): Promise<void>;
  /** When kubelet's process was started, in milliseconds since the epoch; undefined: it does not run. */
  kubeletStart(): Promise<number | undefined>;
}

export interface Ended {
  readonly code: number;
  readonly lines: readonly string[];
}

export interface HostParts {
  /** Of the program that {@link stage} has put on the host, as the host sees it. */
  readonly folder: string;
  readonly kubeletUnit: string;
  readonly say: (line: string) => void;
}

const UNIT = 'cri-resize-shim-installer.service';
const AGAIN_MS = 500;
const ASKS_MS = 10_000;

/** In the host's mounts: all else that the host's programs need is the host's already (hostPID), or is found by its path. */
const onHost = ['--target', '1', '--mount', '--'];

/**
 * The transient unit. `--collect`: nothing is left of one that has failed. What takes longer than all its own time limits together
 * hangs, and is told to end, which undoes it; for that, too, it has time.
 */
const unit = [
  ...['systemd-run', '--quiet', '--wait', '--pipe', '--collect', `--unit=${UNIT}`, '--service-type=exec'],
  ...['--description=cri-resize-shim is installed or taken off', '--property=RuntimeMaxSec=20min'],
  ...['--property=TimeoutStopSec=10min', '--'],
];

export function thisHost({ folder, kubeletUnit, say }: HostParts): Host {
  const program = [join(folder, OWN_NODE), join(folder, 'dist/resizectl.js')];
  return {
    async resizectl(args) {
      const command = [...onHost, ...unit, ...program, ...args];
      const running = execa('nsenter', command, { reject: false, stdin: 'ignore', all: true, buffer: false });
      const lines: string[] = [];
      for await (const line of running.iterable({ from: 'all' })) {
        say(line);
        lines.push(line);
      }
      const { exitCode, shortMessage } = await running;
      if (exitCode === undefined) throw new Error(shortMessage ?? 'nsenter has not ended by itself');
      return { code: exitCode, lines };
    },

    async idle(signal) {
      for (;;) {
        const { ActiveState: state = '' } = await properties(UNIT, ['ActiveState']);
        if (['inactive', 'failed'].includes(state)) return;
        // systemd does not tell the end of a unit to whoever has not begun it.
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
      return Date.now() - Number(age / 1000n);
    },
  };
}

/** What the host's systemd says of a unit. Rejects when it cannot be asked. */
async function properties(unit: string, names: readonly string[]): Promise<Readonly<Record<string, string>>> {
  const command = [...onHost, 'systemctl', 'show', `--property=${names.join(',')}`, '--', unit];
  const { stdout } = await execa('nsenter', command, { timeout: ASKS_MS, stdin: 'ignore' });
  const found: Record<string, string> = {};
  for (const line of stdout.split('\n')) {
    const [name = '', value = ''] = line.split(/=(.*)/s);
    found[name] = value;
  }
  return found;
}
