import { once } from 'node:events';
import type { Program } from './daemon-program.ts';
import type { FakeBackend } from './fake-backend.ts';
import type { TestDaemon } from './test-daemon.ts';

/**
 * Stops a daemon by SIGTERM while a call hangs, and then by a second signal. Resolves when the process has ended: with
 * how it ended, and the code of the call.
 */
export async function stopTwice(
  daemon: TestDaemon,
  backend: FakeBackend,
  program: Program,
  signal: NodeJS.Signals,
): Promise<{ readonly exit: Awaited<Program['exited']>; readonly code: number }> {
  const hanging = once(backend.events, 'hanging');
  const code = daemon.connect().code('/s/Hang');
  await hanging;
  program.kill('SIGTERM');
  await program.logged('stopping');
  program.kill(signal);
  return { exit: await program.exited, code: await code };
}
