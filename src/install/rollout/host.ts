import { join } from 'node:path';
import { execa } from 'execa';
import { Exit } from '../../core/index.ts';
import { OWN_NODE } from '../host/programs.ts';

/** Operations on the host, outside the pod. */
export interface Host {
  /**
   * Runs the staged resizectl on the host in its own systemd unit, so that neither kubelet's restart nor the end of the
   * pod stops it. Returns its exit code and output. Rejects if the wait for it was killed.
   */
  resizectl(args: readonly string[]): Promise<CommandResult>;
  /** Returns whether the shim runs. Rejects if systemd does not answer. */
  shim(): Promise<ShimRun>;
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

const SHIM = 'cri-resize-shim.service';
const QUERY_MS = 10_000;

/** Enters the mount namespace of the host. With hostPID, its programs need nothing else. */
const onHost = ['--target', '1', '--mount', '--'];

/**
 * The transient unit. `--collect` removes it also after a failure. RuntimeMaxSec is longer than all time limits of
 * resizectl together: if it hangs, systemd stops it, and TimeoutStopSec leaves time for the rollback. env, as in the
 * units of the shim: with SELinux in enforcing mode, systemd may not execute files of /var/lib itself.
 */
const unit = [
  ...'systemd-run --quiet --wait --pipe --collect --unit=cri-resize-shim-installer.service'.split(' '),
  ...'--service-type=exec --property=RuntimeMaxSec=20min --property=TimeoutStopSec=10min'.split(' '),
  ...['--description=Install or uninstall cri-resize-shim', '--', '/usr/bin/env'],
];

/**
 * Returns the host of this pod, on which resizectl runs as a transient unit.
 * @param folder folder of the staged program, as a path on the host
 */
export function thisHost(folder: string, say: (line: string) => void): Host {
  return {
    async resizectl(args) {
      const command = [...onHost, ...unit, join(folder, OWN_NODE), join(folder, 'dist/resizectl.js'), ...args];
      const running = execa('nsenter', command, { reject: false, stdin: 'ignore', all: true, buffer: false });
      const lines: string[] = [];
      for await (const line of running.iterable({ from: 'all' })) {
        say(`  ${line}`);
        lines.push(line);
      }
      const { exitCode, shortMessage } = await running;
      if (exitCode === undefined) throw new Error(shortMessage ?? 'nsenter was killed');
      return { code: exitCode, lines };
    },

    async shim() {
      // Not NRestarts: the fallback of the unit starts the service again, which systemd counts as no restart
      // (docs/bypass.md).
      const command = [...onHost, 'systemctl', 'show', '--property=ActiveState,InvocationID', '--', SHIM];
      const { stdout } = await execa('nsenter', command, { timeout: QUERY_MS, stdin: 'ignore' });
      return {
        isActive: /^ActiveState=active$/m.test(stdout),
        run: /^InvocationID=(.*)$/m.exec(stdout)?.[1] ?? '',
      };
    },
  };
}

/** The result of an installation or removal, derived from the exit code of resizectl. */
export type Outcome =
  | { readonly kind: 'done' }
  /** Nothing changed: the node lacks requirements or needs a manual change, or another installation runs. */
  | { readonly kind: 'refused'; readonly why: string }
  /** A step failed. resizectl has rolled back, or reports what it could not roll back. */
  | { readonly kind: 'failed'; readonly why: string };

/** The exit codes of env (env(1)) for a program that does not start: another C library, or noexec. */
const NOT_STARTED = [126, 127];
/** Nothing was started: the host cannot be entered, systemd does not answer, or the unit of an earlier pod runs. */
const NO_UNIT = /^(?:nsenter: |Failed to (?:start transient|connect|create bus))/;

/** Returns the outcome of an installation or removal, by the exit code and the lines of resizectl. */
export function outcomeOf({ code, lines }: CommandResult): Outcome {
  if (code === Exit.done) return { kind: 'done' };
  const output = lines.filter((line) => line.trim() !== '');
  const why =
    output.filter((line) => /^(?:failed: |NOT rolled back: |left in place: |resizectl: )/.test(line)).join('; ') ||
    (output.at(-1) ?? `resizectl ended with exit code ${code}`);
  const isUnchanged = code === Exit.usage || code === Exit.busy || output.some((line) => NO_UNIT.test(line));
  if (isUnchanged) return { kind: 'refused', why };
  if (NOT_STARTED.includes(code)) return { kind: 'refused', why: `the image's Node does not run on this host: ${why}` };
  return { kind: 'failed', why };
}
