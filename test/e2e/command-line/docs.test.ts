import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { execa } from 'execa';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { commandsOf, isAsPrinted, pages } from '../../docs/commands.ts';
import { CriClient } from '../../support/cri/client.ts';
import { type RunningPod, runPod } from '../../support/cri/pod.ts';
import { ShimProcess } from '../../support/cri/shim.ts';
import { type Chapter, chapters } from '../../support/e2e/docs-chapters.ts';
import { Kubelet, removeFiles } from '../../support/e2e/kubelet.ts';

/** Runs the commands of README and docs/ on a node that has everything they need, and compares their output. */

const documented = pages.flatMap(commandsOf);
let folder: string;
let state: string;
let shim: ShimProcess;
let cri: CriClient;
let web: RunningPod;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'docs-'));
  state = join(folder, 'state');
  for (const name of ['bin', 'state']) mkdirSync(join(folder, name));
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'mode=0700', 'state', state]);
  for (const name of ['resizectl', 'cri-resize-shim']) {
    const text = `#!/bin/sh\nexec ${process.execPath} ${resolve('dist', name)}.js "$@"\n`;
    writeFileSync(join(folder, 'bin', name), text, { mode: 0o755 });
  }
});
afterAll(() => {
  execFileSync('umount', [state]);
  rmSync(folder, { recursive: true });
});

const env = (): Record<string, string> => ({ PATH: `${join(folder, 'bin')}:${process.env['PATH'] ?? ''}` });

/** Returns what a terminal shows: stdout if the command succeeds, and stderr too if it fails. */
async function run(line: string): Promise<{ text: string; code: number | undefined }> {
  const { all, stdout, exitCode } = await execa('/bin/sh', ['-c', line], { reject: false, all: true, env: env() });
  return { text: exitCode === 0 ? stdout : all, code: exitCode };
}

const linesOf = (name: Chapter['name']): readonly string[] =>
  chapters.find((chapter) => chapter.name === name)?.lines ?? [];

/**
 * The output of a line has to match one of the outputs that the pages show for it. A line without shown output has to
 * succeed.
 */
async function expectPrinted(name: Chapter['name']): Promise<void> {
  for (const line of linesOf(name)) {
    const shown = documented.filter((command) => command.line === line && command.prints.length > 0);
    const isShown = (text: string): boolean => shown.some(({ prints }) => isAsPrinted(prints, text));
    let { text, code } = await run(line);
    // A command that only reads is repeated, because a deferred resize is in progress during a retry.
    for (
      const until = Date.now() + 30_000;
      isReadOnly(line) && shown.length > 0 && !isShown(text) && Date.now() < until;
    )
      ({ text, code } = await run(line));
    if (shown.length === 0) expect([line, code]).toEqual([line, 0]);
    else if (!isShown(text))
      expect(`$ ${line}\n${text}`).toBe(shown.map(({ prints }) => prints.join('\n')).join('\nor\n'));
  }
}

const isReadOnly = (line: string): boolean => /^resizectl (get|describe) /.test(line);

const prints = (line: string, words: string) =>
  expect.poll(async () => (await run(line)).text, { timeout: 30_000 }).toContain(words);

test('commands of the docs print the documented output without a shim', () => expectPrinted('without a shim'));

describe('with a shim', () => {
  beforeAll(async () => {
    const resize = ['--resize-listen', 'unix:///run/cri-resize-shim/resize.sock'];
    shim = await ShimProcess.start({ args: [...resize, '--state-folder', state, '--metrics-bind', '127.0.0.1:9467'] });
    cri = new CriClient(shim.address);
    const resources = { memory_limit_in_bytes: 256 * MiB, cpu_quota: 20_000, cpu_period: 100_000, cpu_shares: 102 };
    const sleep = { command: ['sleep', '1000000'], resources };
    web = await runPod(cri, {
      name: 'web',
      containers: [
        { name: 'app', ...sleep, mounts: { cache: '/cache' } },
        { name: 'web', ...sleep },
      ],
      volumes: [{ name: 'cache', size: 256 * MiB }],
    });
  });
  afterAll(async () => {
    removeFiles();
    await web.remove();
    cri.close();
    expect(await shim.stop()).toBe(0);
  });

  test('commands of the docs print the documented output for a running pod', async () => {
    await expectPrinted('a running pod');
    expect(web.read('memory.max', 'app')).toBe(String(1024 * MiB));
    expect(web.read('memory.max', 'web')).toBe(String(512 * MiB));
    expect(web.volume('cache').size).toBe(768 * MiB);
  });

  test('commands of the docs print the documented output if more is in use than requested', async () => {
    const size = 256 * MiB;
    await run('resizectl resize web app.memory=256Mi volume.cache=256Mi');
    expect([web.read('memory.max', 'app'), web.volume('cache').size]).toEqual([String(size), size]);
    await cri.exec(web.id('app'), 'dd', 'if=/dev/zero', 'of=/cache/file', 'bs=1M', 'count=100');
    await expectPrinted('more in use than requested');
    expect(web.volume('cache').size).toBe(size);
    await prints('resizectl describe pod web', 'Deferred: VOLUME_IN_USE');
    const [, id = ''] = /^Last resize: +(\S+) /m.exec((await run('resizectl describe pod web')).text) ?? [];
    expect((await run(`resizectl cancel ${id}`)).text).toContain('Canceled');
  });

  test('commands of the docs print the documented output if kubelet lowers a limit below usage', async () => {
    const kubelet = new Kubelet(cri);
    kubelet.runs(web, { containers: { app: 256, web: 512 } });
    kubelet.admit(web, { containers: { app: 64, web: 512 } });
    await prints('resizectl describe pod web', 'Decrease:');
    await expectPrinted('kubelet lowers a limit below usage');
  });

  test('commands of the docs print the documented output for a read-only state folder', async () => {
    execFileSync('mount', ['-o', 'remount,ro', state]);
    try {
      // The first failing write makes the journal unavailable.
      expect((await run('resizectl resize web app.memory=300Mi')).text).toContain('JOURNAL_UNAVAILABLE');
      await expectPrinted('a read-only state folder');
    } finally {
      execFileSync('mount', ['-o', 'remount,rw', state]);
    }
  });
});

test('a shim starts with each command line of the docs', async () => {
  for (const line of linesOf('a shim started by a page')) {
    const child = spawn('/bin/sh', ['-c', `exec ${line}`], {
      env: { ...process.env, ...env() },
      stdio: ['ignore', 'inherit', 'pipe'],
    });
    let log = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => (log += text));
    const ended = once(child, 'exit');
    await expect.poll(() => log, { timeout: 30_000 }).toContain('"metrics are served"');
    await prints('resizectl version', ': answers');
    child.kill('SIGTERM');
    expect(await ended).toEqual([0, null]);
  }
});
