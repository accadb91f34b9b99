import { spawn } from 'node:child_process';
import { once } from 'node:events';

/** The end of a program. `isLate`: the time limit ended it. */
export interface End {
  readonly exitCode: number | undefined;
  readonly isLate: boolean;
}

/** The time in which a program must end its nodes and remove its files. */
const GRACE_MS = 30_000;

/**
 * Runs a Node program in a separate process group until it ends, its time limit expires or the signal aborts. After the
 * grace period, all remaining processes of the group are killed.
 * @param output file descriptor of the log, or `inherit`
 */
export async function runBounded(
  args: readonly string[],
  { cwd, output, limitMs, graceMs = GRACE_MS, signal }: Bounds,
): Promise<End> {
  // The program ends with this process, also if this process is killed.
  const command = ['--pdeathsig', 'TERM', '--', process.execPath, ...args];
  const child = spawn('setpriv', command, { cwd, detached: true, stdio: ['ignore', output, output] });
  const ended = once(child, 'exit') as Promise<[number | null]>;
  let killing: NodeJS.Timeout | undefined;
  const end = (): void => {
    send(child.pid, 'SIGTERM');
    killing ??= setTimeout(() => send(child.pid, 'SIGKILL'), graceMs);
  };
  let isLate = false;
  const limit = setTimeout(() => {
    isLate = true;
    end();
  }, limitMs);
  signal.addEventListener('abort', end);
  if (signal.aborted) end();
  try {
    const [code] = await ended;
    return { exitCode: code ?? undefined, isLate };
  } finally {
    clearTimeout(limit);
    clearTimeout(killing);
    signal.removeEventListener('abort', end);
    send(child.pid, 'SIGKILL');
  }
}

export interface Bounds {
  readonly cwd: string;
  readonly output: number | 'inherit';
  readonly limitMs: number;
  readonly graceMs?: number;
  readonly signal: AbortSignal;
}

/** Sends a signal to the group of a process, if there is one. */
function send(pid: number | undefined, signal: NodeJS.Signals): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
