import { spawnSync } from 'node:child_process';
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';

/** A checkout with a build of its own that takes no time. */
let root: string;

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'setup-'));
  onTestFinished(() => rmSync(root, { recursive: true }));
  mkdirSync(join(root, 'tools'));
  cpSync('tools/setup.mjs', join(root, 'tools/setup.mjs'));
  writeFileSync(join(root, 'tools/build.mjs'), "import { writeFileSync } from 'node:fs'; writeFileSync('built', '');");
  writeFileSync(join(root, 'package-lock.json'), '{}');
});

/** Runs the set-up with a shell script in place of npm, which appends each start to the file `started`. */
function setUp(npm: string, ...args: readonly string[]): { code: number | null; stderr: string; starts: number } {
  mkdirSync(join(root, 'bin'));
  writeFileSync(join(root, 'bin/npm'), `#!/bin/sh\necho "$@" >> started\n${npm}\n`);
  chmodSync(join(root, 'bin/npm'), 0o755);
  const { status: code, stderr } = spawnSync(process.execPath, ['tools/setup.mjs', ...args], {
    cwd: root,
    encoding: 'utf8',
    env: { ...process.env, PATH: `${root}/bin:${process.env.PATH}`, CRI_RESIZE_SHIM_INSTALL_SECONDS: '1' },
  });
  const started = readFileSync(join(root, 'started'), 'utf8').trim().split('\n');
  expect(started.every((line) => line.startsWith('ci --ignore-scripts '))).toBe(true);
  return { code, stderr, starts: started.length };
}

const built = (): string => readFileSync(join(root, 'built'), 'utf8');

test('an npm that waits for a registry that does not answer is stopped and started again', () => {
  const { code, stderr, starts } = setUp('[ "$(wc -l < started)" -ge 2 ] || exec tail -f /dev/null');
  expect(stderr).toContain('setup: installing dependencies: attempt 1 of 3: npm ci: not finished after 1 s\n');
  expect(stderr).toContain('setup: building: done');
  expect({ code, starts }).toEqual({ code: 0, starts: 2 });
  expect(built()).toBe('');
});

test.each([[[]], [['--quiet']]])(
  'an npm that never finishes ends the set-up after three attempts, with arguments %j',
  (args) => {
    const { code, stderr, starts } = setUp('exec tail -f /dev/null', ...args);
    expect({ code, starts }).toEqual({ code: 1, starts: 3 });
    expect(stderr).toContain('attempt 3 of 3: npm ci: not finished after 1 s\n');
    expect(stderr).toMatch(
      /setup: installing dependencies failed: check that this machine reaches its npm registry .*\n$/,
    );
    expect(built).toThrow('ENOENT');
  },
);

test('an npm that fails is started again', () => {
  const { code, stderr, starts } = setUp('[ "$(wc -l < started)" -ge 2 ] || exit 7');
  expect({ code, starts }).toEqual({ code: 0, starts: 2 });
  expect(stderr).toContain('attempt 1 of 3: npm ci: exit code 7\n');
});
