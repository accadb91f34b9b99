import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { Program } from '../support/daemon/daemon-program.ts';
import { stopTwice } from '../support/daemon/second-signal.ts';
import { TestDaemon } from '../support/daemon/test-daemon.ts';

const daemon = new TestDaemon();

/**
 * Each fsync blocks a thread of libuv's pool, as on a disk that hangs: the thread opens a pipe without a writer. With
 * HANGS_FROM_START, a thread hangs before the shim does anything.
 */
const PRELOAD = `
import { open } from 'node:fs/promises';
const file = await open('/');
Object.getPrototypeOf(file).sync = async () => {
  const opening = open(process.env.PIPE);
  process.stderr.write('{"msg":"fsync hangs"}\\n');
  await opening;
};
await file.close();
if (process.env.HANGS_FROM_START) void open(process.env.PIPE);
process.on('SIGUSR2', () => { throw new Error('a bug'); });
`;

/** Starts a daemon whose journal hangs. */
function startHanging(env: NodeJS.ProcessEnv = {}): Program {
  const [pipe, preload] = [join(daemon.folder, 'pipe'), join(daemon.folder, 'preload.mjs')];
  execFileSync('mkfifo', [pipe]);
  writeFileSync(preload, PRELOAD);
  return daemon.startWith({ env: { ...env, PIPE: pipe, NODE_OPTIONS: `--import=${preload}` } });
}

async function serving(program: Program): Promise<void> {
  await program.logged('fsync hangs');
  await program.logged('serving');
}

describe('a shim whose disk hangs', () => {
  test.each(['SIGTERM', 'SIGINT'] as const)(
    'a shim whose disk hangs closes everything else and ends by the signal (%s)',
    async (signal) => {
      await daemon.startBackend();
      const program = startHanging();
      await serving(program);
      expect(await daemon.connect().call('/s/Echo', 'x')).toBe('x');
      program.kill(signal);
      expect(await program.exited).toEqual({ code: null, signal });
      expect(program.log.filter(({ level }) => level === 'warn')).toContainEqual(
        expect.objectContaining({ msg: 'journal not closed: its disk does not answer', timeoutMs: 1000 }),
      );
      expect(program.log.find(({ msg }) => msg === 'stopped')).toMatchObject({ level: 'info' });
    },
  );

  test.each(['SIGTERM', 'SIGINT'] as const)(
    'a shim whose disk hangs ends at once after a second signal (%s)',
    async (signal) => {
      const backend = await daemon.startBackend();
      const program = startHanging();
      await serving(program);
      expect(await stopTwice(daemon, backend, program, signal)).toMatchObject({ exit: { code: null, signal } });
      expect(program.log.map(({ msg }) => msg)).not.toContain('stopped');
    },
  );

  test('a shim whose disk hangs ends by SIGKILL after an uncaught exception', async () => {
    const program = startHanging();
    await serving(program);
    program.kill('SIGUSR2');
    expect(await program.exited).toEqual({ code: null, signal: 'SIGKILL' });
    expect(program.log.at(-1)).toMatchObject({ level: 'error', msg: 'uncaught exception' });
  });

  test('a shim whose disk hangs ends by SIGKILL if it cannot start', async () => {
    writeFileSync(join(daemon.folder, 'shim'), '');
    const program = startHanging({ HANGS_FROM_START: 'yes' });
    expect(await program.exited).toEqual({ code: null, signal: 'SIGKILL' });
    expect(program.stderr).toContain('cri-resize-shim: ');
  });
});
