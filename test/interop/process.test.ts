import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Service, runToEnd } from './process.ts';

const { signal } = new AbortController();
const LONG_MS = 30_000;
/** Stays until it is killed. */
const STAY = 'setInterval(() => {}, 1000);';

let folder: string;
beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), 'process-'))));
afterEach(() => rmSync(folder, { recursive: true }));

const node = (script: string, deadlineMs = LONG_MS, ending = signal) =>
  runToEnd(process.execPath, ['-e', script], deadlineMs, ending);

describe('a program that runs to its end', () => {
  test('a program that exits with 0 has no failure', async () => {
    expect(await node('console.log("out"); console.error("err")')).toEqual({ output: 'out\nerr', failure: undefined });
  });

  test('a program fails with its exit code, or with the reason why it cannot be started', async () => {
    expect(await node('console.log("why"); process.exitCode = 3')).toEqual({
      output: 'why',
      failure: 'it exited with 3',
    });
    const { failure } = await runToEnd(join(folder, 'none'), [], LONG_MS, signal);
    expect(failure).toContain('ENOENT');
  });

  test('a program is killed at its deadline, also if it ignores SIGTERM', async () => {
    const { failure } = await node(`process.on('SIGTERM', () => {}); ${STAY}`, 300);
    expect(failure).toBe('it did not end within 0.3 s');
  });

  test('a program is stopped when the command is aborted', async () => {
    const ending = new AbortController();
    const run = node(STAY, LONG_MS, ending.signal);
    ending.abort();
    await expect(run).rejects.toThrow('aborted');
  });
});

describe('a program that runs until it is stopped', () => {
  const start = (script: string): Promise<Service> =>
    Service.start({
      what: 'the program',
      file: process.execPath,
      args: ['-e', script],
      log: join(folder, 'log'),
      ready: /^ready on (\d+)$/,
      signal,
    });
  const READY = 'console.error("first"); console.error("ready on 17");';

  test('a service is ready once it logs its line, and stops without a fault', async () => {
    const service = await start(`${READY} ${STAY}`);
    expect(service.captured).toBe('17');
    expect(await service.stop()).toBeUndefined();
    expect(readFileSync(join(folder, 'log'), 'utf8')).toBe('first\nready on 17\n');
  });

  test('a service cannot be started if it ends before it logs its line', async () => {
    await expect(start('console.error("no port"); process.exitCode = 2')).rejects.toThrow(
      /^cannot start the program: it exited with 2; its output is in /,
    );
    expect(existsSync(join(folder, 'log'))).toBe(true);
  });

  test('a service has a fault if it ends by itself, or exits with another code than 0 when it is stopped', async () => {
    const crashed = await start(`console.error("ready on " + process.pid); ${STAY}`);
    process.kill(Number(crashed.captured), 'SIGKILL');
    await crashed.ended;
    expect(await crashed.stop()).toBe('the program ended by SIGKILL before it was stopped');
    const failing = await start(`process.on('SIGTERM', () => process.exit(4)); ${READY} ${STAY}`);
    expect(await failing.stop()).toBe('the program exited with 4 after SIGTERM');
  });
});
