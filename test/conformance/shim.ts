import type { ChildProcess } from 'node:child_process';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

export interface Shim {
  readonly endpoint: string;
  /** Stops the shim. Returns its exit code, or the signal that ended it. */
  stop(): Promise<number | string>;
}

export interface ShimStart {
  readonly program: string;
  readonly backend: string;
  /** The file for its log. */
  readonly log: string;
}

const socket = '/run/cri-resize-shim/cri-resize-shim.sock';
const probeEveryMs = 50;
const startLimitMs = 30_000;

/** Starts the shim in front of `backend`. Resolves when it accepts connections. */
export async function startShim(start: ShimStart): Promise<Shim> {
  const endpoint = `unix://${socket}`;
  const log = openSync(start.log, 'w');
  const child = spawn(
    process.execPath,
    [start.program, '--listen', endpoint, '--container-runtime-endpoint', start.backend],
    { stdio: ['ignore', log, log] },
  );
  closeSync(log);
  await once(child, 'spawn');
  const ended = once(child, 'exit').then(([code, signal]: (number | string | null)[]) => code ?? signal ?? 'nothing');
  if (!(await accepts(child))) {
    child.kill('SIGKILL');
    const said = (await readFile(start.log, 'utf8')).trim();
    throw new Error(`the shim did not listen on ${socket} (it exited with ${await ended}); its output:\n${said}`);
  }
  return {
    endpoint,
    async stop() {
      child.kill('SIGTERM');
      return ended;
    },
  };
}

/** Tries to connect until that succeeds, the process has exited, or the time is over. */
async function accepts(child: ChildProcess): Promise<boolean> {
  const limit = performance.now() + startLimitMs;
  while (performance.now() < limit && child.exitCode === null && child.signalCode === null) {
    if (await connects()) return true;
    await delay(probeEveryMs);
  }
  return false;
}

function connects(): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = connect(socket);
    probe.on('connect', () => {
      probe.destroy();
      resolve(true);
    });
    probe.on('error', () => resolve(false));
  });
}
