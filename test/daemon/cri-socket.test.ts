import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { TestDaemon } from '../support/daemon/test-daemon.ts';

const daemon = new TestDaemon();
const isRoot = process.getuid?.() === 0;

describe('the CRI socket', () => {
  test('a second shim does not take the socket of a running one, and exits with code 1 and its process ID', async () => {
    await daemon.startBackend();
    const first = daemon.start();
    await first.logged('serving');
    const second = daemon.start();
    expect(await second.exited).toEqual({ code: 1, signal: null });
    expect(second.stderr).toBe(
      `cri-resize-shim: cannot listen on ${daemon.listen}: pid ${first.process.pid} (node) already listens there; stop it or use another path\n`,
    );
    expect(await daemon.connect().call('/s/Echo', 'x')).toBe('x');
  });

  test('one of several shims that start concurrently takes the socket of a killed shim', async () => {
    await daemon.startBackend();
    const killed = daemon.start();
    await killed.logged('serving');
    killed.kill('SIGKILL');
    await killed.exited;
    expect(existsSync(daemon.listen)).toBe(true);

    const programs = Array.from({ length: 4 }, () => daemon.start());
    const outcomes = await Promise.all(
      programs.map((program) =>
        Promise.race([program.exited.then(({ code }) => code), program.logged('serving').then(() => 'serving')]).catch(
          () => 1,
        ),
      ),
    );
    expect(outcomes.sort()).toEqual([1, 1, 1, 'serving']);
    expect(await daemon.connect().call('/s/Echo', 'x')).toBe('x');
  });

  test.runIf(isRoot)(
    'exits with code 1 and one line if it cannot create the CRI socket in a folder without write permission',
    async () => {
      const program = daemon.run({ uid: 65_534 }, '--listen', join(daemon.folder, 'x.sock'));
      expect(await program.exited).toEqual({ code: 1, signal: null });
      expect(program.stderr).toBe(
        `cri-resize-shim: cannot listen on ${daemon.folder}/x.sock: no permission to create a socket in ${daemon.folder}; run as root or use a path in a folder of your own\n`,
      );
    },
  );
});
