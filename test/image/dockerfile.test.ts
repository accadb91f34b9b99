import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { execa } from 'execa';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { version } from '../../src/core/config/version.ts';

/** Runs the steps of the Dockerfile in a folder, because an image needs a builder and a registry. */

let folder: string;

beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'image-'))));
afterEach(() => rmSync(folder, { recursive: true }));

const dockerfile = (): string => readFileSync('Dockerfile', 'utf8');

test('both stages of the Dockerfile use one base image, pinned by digest', () => {
  const [, base] = /^ARG BASE=(.*)$/m.exec(dockerfile()) ?? [];
  expect(base).toMatch(/^node:26-slim@sha256:[0-9a-f]{64}$/);
  expect([...dockerfile().matchAll(/^FROM (\S+)/gm)].map(([, from]) => from)).toEqual(['${BASE}', '${BASE}']);
});

test('upgrade: the Dockerfile copies everything that its steps need, and its programs run on their own', async () => {
  const build = join(folder, 'build');
  const out = join(folder, 'out');
  mkdirSync(build);
  const [stage = '', last = ''] = dockerfile()
    .split(/^FROM /m)
    .slice(1);
  const steps = stage.split('\n').flatMap((line) => {
    const [, verb, rest = ''] = /^(COPY|RUN) (.*)$/.exec(line) ?? [];
    return verb === undefined ? [] : [{ verb, words: rest.replaceAll('/out', out).split(' ') }];
  });
  expect(steps.length).toBeGreaterThan(5);
  for (const { verb, words } of steps) {
    const [command = '', ...rest] = words;
    if (verb === 'COPY') {
      const to = resolve(build, words.at(-1)!);
      for (const from of words.slice(0, -1))
        cpSync(from, words.at(-1)!.endsWith('/') ? join(to, basename(from)) : to, { recursive: true });
    } else if (command === 'npm') {
      // The checkout's packages match the same lock file.
      symlinkSync(resolve('node_modules'), join(build, 'node_modules'));
    } else {
      await execa(command, rest, { cwd: build });
    }
  }
  const [, entry = ''] = /^ENTRYPOINT \["bash", "(.*)"\]$/m.exec(last) ?? [];
  const installed = join(folder, dirname(dirname(entry)), 'dist/cri-resize-shim.js');
  for (const [, from = '', to = ''] of last.matchAll(/^COPY (?:--from=build )?(\S+) (\S+)$/gm)) {
    const source = from.replace(/^\/out/, out).replace(/^\/build/, build);
    const target = join(folder, to.endsWith('/') ? join(to, basename(from)) : to);
    mkdirSync(dirname(target), { recursive: true });
    cpSync(source, target, { recursive: true, verbatimSymlinks: true });
  }
  rmSync(build, { recursive: true });
  const env = { PATH: `${dirname(process.execPath)}:${process.env['PATH']}` };
  const { stdout } = await execa('bash', [join(folder, entry), '--version'], { cwd: '/', env });
  expect(stdout).toBe(version);
  const config = join(folder, 'config.yaml');
  writeFileSync(config, 'logLevel: loud\n');
  const rejected = await execa(process.execPath, [installed, '--config', config], { cwd: '/', reject: false });
  expect(rejected.stderr).toContain('config.yaml:1:1: logLevel: "loud" must be one of');
  const { stdout: used } = await execa(join(dirname(dirname(installed)), 'bin/resizectl'), ['--help']);
  expect(used).toContain('resizectl');
  const { packages } = JSON.parse(readFileSync('package-lock.json', 'utf8')) as {
    readonly packages: Readonly<Record<string, { readonly version: string }>>;
  };
  const pinned = packages[`node_modules/node-linux-${process.arch}`]?.version;
  expect((await execa(join(folder, 'usr/local/bin/node'), ['--version'])).stdout).toBe(`v${pinned}`);
  const sbom = join(folder, 'usr/local/share/doc/cri-resize-shim/sbom.cdx.json');
  const { bomFormat, components } = JSON.parse(readFileSync(sbom, 'utf8')) as {
    readonly bomFormat: string;
    readonly components: readonly { readonly name: string; readonly version: string }[];
  };
  expect(bomFormat).toBe('CycloneDX');
  expect(components.find(({ name }) => name === 'node')?.version).toBe(pinned);
  expect(components.map(({ name }) => name)).toEqual(expect.arrayContaining(['@grpc/grpc-js', 'koffi', 'pino']));
  const installer = join(dirname(installed), 'cri-resize-shim-installer.js');
  expect((await execa(process.execPath, [installer, '--version'], { cwd: '/' })).stdout).toBe(version);
}, 900_000);
