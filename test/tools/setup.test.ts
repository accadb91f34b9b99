import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import type { Server } from 'node:http';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { obtain, present } from '../../tools/download/cache.ts';
import { silent } from '../../tools/download/progress.ts';
import type { SignatureResult } from '../../tools/signatures/signatures.ts';
import { checkSignatures } from '../../tools/signatures/signatures.ts';

describe('set-up', () => {
  /** A checkout with a separate build that takes no time. */
  let root: string;

  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'setup-'));
    onTestFinished(() => rmSync(root, { recursive: true }));
    mkdirSync(join(root, 'tools'));
    cpSync('tools/setup.mjs', join(root, 'tools/setup.mjs'));
    writeFileSync(
      join(root, 'tools/build.mjs'),
      "import { writeFileSync } from 'node:fs'; writeFileSync('built', '');",
    );
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
});

interface Locked {
  readonly version?: string;
  readonly resolved?: string;
  readonly integrity?: string;
  readonly link?: boolean;
}

const { packages } = JSON.parse(readFileSync('package-lock.json', 'utf8')) as {
  readonly packages: Readonly<Record<string, Locked>>;
};
/** The first entry is this package. */
const locked = Object.entries(packages).filter(([path]) => path !== '');

test('the lockfile has a digest of every package that npm installs', () => {
  expect(locked.length).toBeGreaterThan(100);
  const without = locked.filter(([, { integrity = '' }]) => !/^sha512-[A-Za-z0-9+/]{86}==$/.test(integrity));
  expect(without.map(([path]) => path)).toEqual([]);
});

test('every package of the lockfile comes from the registry of npm', () => {
  const elsewhere = locked.filter(
    ([, { resolved, link }]) =>
      link === true || (resolved !== undefined && !/^https:\/\/registry\.npmjs\.org\//.test(resolved)),
  );
  expect(elsewhere.map(([path]) => path)).toEqual([]);
});

describe('signatures of packages', () => {
  let server: Server | undefined;

  afterEach(() => {
    server?.closeAllConnections();
    server?.close();
  });

  /** Starts a registry that answers every request with this response. `undefined`: it never answers. */
  async function registry(status: number, body: string | undefined): Promise<string> {
    server = createServer((request, response) => {
      response.statusCode = request.url === '/npm/-/npm/v1/keys' ? status : 418;
      if (body !== undefined) response.end(body);
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}/npm`;
  }
  const KEYS = JSON.stringify({ keys: [{ keyid: 'SHA256:a', key: 'b' }] });

  describe('a registry without keys', () => {
    test.each<[string, number, string | undefined, RegExp]>([
      ['it has none', 404, '', /keys serves no keys: HTTP 404$/],
      ['its list is empty', 200, '{"keys":[]}', /keys serves no keys$/],
      ['it answers with a page', 200, '<html>', /keys does not answer: /],
      ['it never answers', 200, undefined, /keys does not answer: .*timeout/],
    ])(
      'signatures are not checked, and npm is not asked, if the registry has no usable keys: %s',
      async (_, status, body, why) => {
        const npm = (): never => {
          throw new Error('npm was asked');
        };
        const timeoutMs = body === undefined ? 300 : 60_000;
        const result = await checkSignatures({ registry: await registry(status, body), npm, timeoutMs });
        expect(result).toEqual({ kind: 'not checked', why: expect.stringMatching(why) as string });
      },
    );
  });

  test.each<[string, string, boolean, SignatureResult]>([
    ['right', '{"invalid":[],"missing":[]}', false, { kind: 'verified' }],
    [
      'wrong or missing',
      '{"invalid":[{"name":"koffi","version":"3.3.4"}],"missing":[{"name":"pino","version":"10.4.0"}]}',
      false,
      { kind: 'failed', packages: ['koffi@3.3.4: wrong signature', 'pino@10.4.0: no signature'] },
    ],
    [
      'an error of npm',
      '{"error":{"summary":"no TUF metadata"}}',
      false,
      { kind: 'not checked', why: 'npm audit signatures: no TUF metadata' },
    ],
    ['nothing', '', false, { kind: 'not checked', why: 'npm audit signatures printed no result' }],
    ['something else', '{}', false, { kind: 'not checked', why: 'npm audit signatures printed no result' }],
    ['too late', '', true, { kind: 'not checked', why: 'npm audit signatures has not ended in time' }],
  ])(
    'with keys of the registry, the result of npm audit signatures counts: %s',
    async (_, stdout, timedOut, expected) => {
      const asked: (readonly string[])[] = [];
      const npm = (args: readonly string[]) => {
        asked.push(args);
        return Promise.resolve({ stdout, timedOut });
      };
      const address = await registry(200, KEYS);
      expect(await checkSignatures({ registry: address, npm, timeoutMs: 60_000 })).toEqual(expected);
      expect(asked).toEqual([['audit', 'signatures', '--json', '--registry', address]]);
    },
  );
});

describe('cache of downloads', () => {
  let cache: string;
  let made: number;

  beforeEach(async () => {
    cache = await mkdtemp(join(tmpdir(), 'cache-test-'));
    made = 0;
  });

  afterEach(() => rm(cache, { recursive: true }));

  const recipe = {
    name: 'part',
    key: 'one',
    async make(folder: string): Promise<Record<string, string>> {
      made += 1;
      await writeFile(join(folder, 'program'), 'content');
      return { program: '1.0' };
    },
  };

  test('a part is made once for two concurrent requests', async () => {
    const [first, second] = await Promise.all([obtain(cache, recipe, silent), obtain(cache, recipe, silent)]);
    expect(second).toEqual(first);
    expect(made).toBe(1);
    expect(await present(cache, recipe)).toEqual({ folder: first.folder, versions: { program: '1.0' } });
    expect(await readFile(join(first.folder, 'program'), 'utf8')).toBe('content');
  });

  test('an incomplete part is made again', async () => {
    const { folder } = await obtain(cache, recipe, silent);
    await truncate(join(folder, 'program'), 3);
    expect(await present(cache, recipe)).toBeUndefined();
    await obtain(cache, recipe, silent);
    expect(made).toBe(2);
  });

  test('a part that cannot be made leaves nothing in the cache', async () => {
    const broken = {
      ...recipe,
      async make(folder: string): Promise<Record<string, string>> {
        await recipe.make(folder);
        throw new Error('cut off');
      },
    };
    await expect(obtain(cache, broken, silent)).rejects.toThrow('cut off');
    expect(await readdir(cache)).toEqual(['part.lock']);
  });
});
