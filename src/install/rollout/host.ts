import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { execa } from 'execa';
import { Exit, errnoOf, messageOf, wallTime } from '../../core/index.ts';
import { OWN_NODE } from '../host/programs.ts';
import { loggingChanges } from './retry.ts';

/** Operations on the host, outside the pod. */
export interface Host {
  /**
   * Runs the staged resizectl on the host in its own systemd unit, so that neither kubelet's restart nor the end of the
   * pod stops it. Returns its exit code and output. Rejects if systemd cannot start it.
   * @param after `unstage`: systemd removes the staged files when resizectl has ended, even if this pod no longer runs
   */
  resizectl(args: readonly string[], after?: 'unstage'): Promise<CommandResult>;
  /**
   * Waits until no resizectl of an earlier pod runs on the host. Asks again if systemd does not answer, as while it
   * re-executes itself. Rejects with the reason of the signal, and with {@link NoSystemd}.
   */
  idle(signal: AbortSignal): Promise<void>;
  /** Start time of the kubelet process in milliseconds since the epoch; undefined if it does not run. */
  kubeletStart(): Promise<number | undefined>;
  /** Returns whether the shim runs. Rejects if systemd does not answer. */
  shim(): Promise<ShimRun>;
}

/** The host has another init system: nothing can be installed on it. */
export class NoSystemd extends Error {
  constructor() {
    super('systemd is not the init system of this node');
  }
}

export interface ShimRun {
  readonly isActive: boolean;
  /** The ID that systemd assigns to each run of the service. Empty if unknown. */
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
  /** The root of the host. */
  readonly hostRoot: string;
  readonly say: (line: string) => void;
}

const UNIT = 'cri-resize-shim-installer.service';
const SHIM = 'cri-resize-shim.service';
const AGAIN_MS = 500;
const QUERY_MS = 10_000;
const LABEL_MS = 60_000;

/** Enters the mount namespace of the host. With hostPID, its programs need nothing else. */
const onHost = ['--target', '1', '--mount', '--'];

/**
 * The transient unit. `--collect` removes it also after a failure. RuntimeMaxSec is longer than all time limits of
 * resizectl together: if it hangs, systemd stops it, and TimeoutStopSec leaves time for the rollback.
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

/**
 * The property of the unit that removes files and folders when the unit has ended, even after a failure. rm reports
 * what it cannot remove in the unit's output; the unit's result is that of resizectl.
 */
export const removalAfter = (paths: readonly string[]): string =>
  `--property=ExecStopPost=-/bin/rm -rf -- ${paths.map(quoted).join(' ')}`;

/**
 * Sets the SELinux type of programs on copied files, if the host has SELinux: below /var/lib they inherit var_lib_t,
 * which systemd may not execute in enforcing mode. A failure is logged: where the type matters, systemd does not start
 * the program (exit code 203).
 * @param hostRoot the root of the host
 */
export async function allowExecution(folder: string, say: (line: string) => void, hostRoot: string): Promise<void> {
  // The file system is mounted only while SELinux is enabled.
  const isEnabled = await stat(join(hostRoot, 'sys/fs/selinux/enforce')).then(
    () => true,
    () => false,
  );
  if (!isEnabled) return;
  const command = [...onHost, 'chcon', '-R', '-t', 'bin_t', '--', folder];
  const options = { reject: false, timeout: LABEL_MS, stdin: 'ignore' } as const;
  const { failed, stderr, shortMessage } = await execa('nsenter', command, options);
  if (failed) say(`the SELinux type of ${folder} was not set: ${stderr.trim() || shortMessage}`);
}

/** Returns the host of this pod, on which resizectl runs as a transient unit. */
export function thisHost({ folder, staged, kubeletUnit, hostRoot, say }: HostOptions): Host {
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
      if (!(await isBooted(hostRoot))) throw new NoSystemd();
      await idle(say, signal);
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
      // Not NRestarts: the fallback of the unit starts the service again, which systemd counts as no restart
      // (docs/bypass.md).
      const { ActiveState: state = '', InvocationID: run = '' } = await properties(SHIM, [
        'ActiveState',
        'InvocationID',
      ]);
      return { isActive: state === 'active', run };
    },
  };
}

/** Whether systemd is the init system of the host (sd_booted(3)). */
async function isBooted(hostRoot: string): Promise<boolean> {
  try {
    await stat(join(hostRoot, 'run/systemd/system'));
    return true;
  } catch (error) {
    // For other errors, systemctl reports the problem.
    return errnoOf(error) !== 'ENOENT';
  }
}

/** Waits until the transient unit has ended. Rejects with the reason of the signal. */
async function idle(say: (line: string) => void, signal: AbortSignal): Promise<void> {
  const complain = loggingChanges(say);
  for (;;) {
    const state = await properties(UNIT, ['ActiveState'], signal).then(
      ({ ActiveState }) => ActiveState ?? '',
      (error: unknown) => {
        signal.throwIfAborted();
        complain(`systemd does not answer: ${messageOf(error).replaceAll(/\s+/g, ' ')}; trying again`);
        return '';
      },
    );
    if (['inactive', 'failed'].includes(state)) return;
    // systemd notifies only the process that started a unit.
    await delay(AGAIN_MS, undefined, { signal }).catch(() => signal.throwIfAborted());
  }
}

/** Returns properties of a unit on the host. Rejects if systemd does not answer, or when the signal aborts. */
async function properties(
  unit: string,
  names: readonly string[],
  signal?: AbortSignal,
): Promise<Readonly<Record<string, string>>> {
  const command = [...onHost, 'systemctl', 'show', `--property=${names.join(',')}`, '--', unit];
  const { stdout } = await execa('nsenter', command, {
    timeout: QUERY_MS,
    stdin: 'ignore',
    ...(signal !== undefined && { cancelSignal: signal }),
  });
  const found: Record<string, string> = {};
  for (const line of stdout.split('\n')) {
    const [name = '', value = ''] = line.split(/=(.*)/s);
    found[name] = value;
  }
  return found;
}

/** The result of an installation or removal, derived from the exit code of resizectl. */
export type Outcome =
  /** `left`: files that could not be removed, and why. */
  | { readonly kind: 'done'; readonly left?: string }
  /** Nothing changed: the node lacks requirements or needs a manual change. `isBusy`: another install runs. */
  | { readonly kind: 'refused'; readonly why: string; readonly isBusy?: true }
  /** A step failed. resizectl has rolled back, or reports what it could not roll back. */
  | { readonly kind: 'failed'; readonly why: string }
  /** The node has left the cluster: whether it works is unknown, and no other node has to wait for it. */
  | { readonly kind: 'gone'; readonly why: string };

/** A message of resizectl, or of rm after it, about a remaining file. */
const LEFT = /^(?:not cleaned up after |(?:\/bin\/)?rm: )/;
/** systemd's exit codes for a program that cannot start (systemd.exec(5)): another C library or noexec. */
const NOT_STARTED = [127, 203];
/** EXIT_EXEC of systemd. */
const NOT_EXECUTED = 203;
const NO_EXECUTION =
  '; check that the file system of /var/lib/cri-resize-shim-installer is not mounted noexec, and that SELinux does not deny it (ausearch -m avc -ts recent)';

/** Returns the outcome of an installation or removal, by the exit code and the lines of resizectl. */
export function outcomeOf({ code, lines }: CommandResult): Outcome {
  if (code === Exit.done) {
    const left = lines.filter((line) => LEFT.test(line)).join('; ');
    return { kind: 'done', ...(left !== '' && { left }) };
  }
  const output = lines.filter((line) => line.trim() !== '');
  const why =
    output.filter((line) => /^(?:failed: |NOT rolled back: |left in place: |resizectl: )/.test(line)).join('; ') ||
    output.at(-1);
  if (NOT_STARTED.includes(code)) {
    const cause = why ?? `exit code ${code}`;
    return { kind: 'refused', why: `the image's Node does not run on this host: ${cause}${remedyFor(code, cause)}` };
  }
  if (code === Exit.busy) return { kind: 'refused', why: why ?? 'another installation runs', isBusy: true };
  return { kind: code === Exit.usage ? 'refused' : 'failed', why: why ?? `resizectl ended with exit code ${code}` };
}

/**
 * Returns the remedy for a program that may not be executed, or a library that the dynamic loader has not found. Node
 * needs libatomic, which minimal systems lack.
 */
function remedyFor(code: number, cause: string): string {
  const [, library] = /error while loading shared libraries: (\S+): /.exec(cause) ?? [];
  if (library === undefined) return code === NOT_EXECUTED ? NO_EXECUTION : '';
  const packages = library.startsWith('libatomic')
    ? ' (libatomic1 on Debian and Ubuntu, libatomic on Fedora and RHEL)'
    : '';
  return `; install the package with ${library} on this host${packages}`;
}

/** Whether a dry run has listed any changes. */
export const hasChanges = ({ lines }: CommandResult): boolean => lines.some((line) => line.startsWith('would: '));
