import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { runBounded } from './bounded.ts';

let folder: string;
beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), 'bounded-'))));
afterEach(() => rmSync(folder, { recursive: true }));

async function run(script: string, limitMs: number, signal = new AbortController().signal) {
  const log = await open(join(folder, 'log'), 'w');
  try {
    const end = await runBounded(['-e', script], { cwd: folder, output: log.fd, limitMs, graceMs: 200, signal });
    return { ...end, log: readFileSync(join(folder, 'log'), 'utf8') };
  } finally {
    await log.close();
  }
}

/** Ignores SIGTERM, and has a child that does, too. */
const STUBBORN = `
  process.on('SIGTERM', () => {});
  const child = require('node:child_process').spawn('sh', ['-c', 'trap "" TERM; echo pid $$; while :; do sleep 1; done'], { stdio: 'inherit' });
  setInterval(() => {}, 1000);`;

test('a stage that ends in time has its own exit code, and its output in the log', async () => {
  expect(await run('console.log("3 passed, 1 failed"); process.exitCode = 1', 100_000)).toEqual({
    exitCode: 1,
    isLate: false,
    log: '3 passed, 1 failed\n',
  });
});

test('a stage that exceeds its time limit is ended and reported as late', async () => {
  expect(await run('setInterval(() => {}, 1000)', 100)).toEqual({ exitCode: undefined, isLate: true, log: '' });
});

test('a stage that ignores its end signal is killed with its children', async () => {
  const ending = new AbortController();
  const running = run(STUBBORN, 100_000_000, ending.signal);
  const pid = (): string | undefined => /^pid (\d+)$/m.exec(readFileSync(join(folder, 'log'), 'utf8'))?.[1];
  await expect.poll(pid, { timeout: 120_000 }).toBeDefined();
  const child = pid();
  ending.abort();
  expect(await running).toMatchObject({ exitCode: undefined, isLate: false });
  const state = (): string => {
    try {
      return /^\d+ \(.*\) (\S)/.exec(readFileSync(`/proc/${child}/stat`, 'utf8'))?.[1] ?? '';
    } catch {
      return 'gone';
    }
  };
  // A zombie waits for the first process to collect it.
  await expect.poll(state, { timeout: 120_000 }).toMatch(/gone|Z/);
});

test('a stage that is running when the command is stopped ends, and is not late', async () => {
  const ending = new AbortController();
  const running = run('setInterval(() => {}, 1000)', 100_000, ending.signal);
  ending.abort();
  expect(await running).toEqual({ exitCode: undefined, isLate: false, log: '' });
});
