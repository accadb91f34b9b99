import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { execa } from 'execa';

/** The process that changes the installation of this node holds its lock. */
export const INSTALL_LOCK = '/run/cri-resize-shim-installer.lock';

/** A held lock. */
export interface InstallLock {
  readonly kind: 'held';
  release(): Promise<void>;
}

/** The process that holds the lock; undefined: not known yet. */
export interface LockedBy {
  readonly kind: 'locked';
  readonly pid: number | undefined;
}

/** Exit code of flock(1) if another process holds the lock. */
const LOCKED = 75;

/**
 * Takes the lock of a file without waiting. The kernel releases it when this process ends, however that happens.
 * Rejects if it cannot be taken for another reason.
 */
export async function takeInstallLock(file = INSTALL_LOCK): Promise<InstallLock | LockedBy> {
  // Uses a program of util-linux instead of koffi, so that a shim whose libraries do not load can be removed. The
  // program ends with our end of the pipe and ignores signals from a terminal or systemd, because a rollback needs the
  // lock. Each line of the file is in place once it is printed.
  const script = `trap '' INT TERM HUP; echo "$1" >"$0"; echo locked; exec cat >/dev/null`;
  const command = ['--nonblock', '--conflict-exit-code', String(LOCKED), file, 'sh', '-c', script, file];
  const holder = execa('flock', [...command, String(process.pid)], {
    ...{ stdin: 'pipe', detached: true, cleanup: false, reject: false, buffer: { stdout: false } },
  });
  const ended = holder.then((result) => result);
  // A release closes the pipe, which a holder that was killed has closed already.
  holder.stdin.on('error', () => undefined);
  if (await Promise.race([once(holder.stdout, 'data').then(() => true), ended.then(() => false)])) {
    return {
      kind: 'held',
      async release() {
        holder.stdin.end();
        await ended;
      },
    };
  }
  const { exitCode, stderr, shortMessage } = await ended;
  if (exitCode === LOCKED) return { kind: 'locked', pid: await pidIn(file) };
  throw new Error(
    `${file} cannot be locked: ${stderr.trim() === '' ? (shortMessage ?? 'flock failed') : stderr.trim()}`,
  );
}

async function pidIn(file: string): Promise<number | undefined> {
  const pid = Number((await readFile(file, 'utf8').catch(() => '')).trim());
  return pid > 0 ? pid : undefined;
}
