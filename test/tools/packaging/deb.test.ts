import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { execa } from 'execa';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { makeDeb } from '../../../tools/packaging/deb.ts';

/** dpkg installs, upgrades and purges the package in its own root. test/e2e/systemd/units.test.ts runs it. */

const CONFIG = '/etc/cri-resize-shim/config.yaml';
const FLAGS = '/etc/default/cri-resize-shim';
const JOURNAL = '/var/lib/cri-resize-shim/journal';
const FILES = [CONFIG, FLAGS, JOURNAL];

let made: string;
let deb: string;
let root: string;

beforeAll(async () => {
  made = mkdtempSync(join(tmpdir(), 'deb-made-'));
  const tree = join(made, 'tree');
  const program = '#!/usr/bin/env node\n';
  for (const path of ['LICENSE', 'bin/resizectl', 'systemd/cri-resize-shim.service', 'dist/resizectl.1', 'other'])
    put(join(tree, path), 'text');
  for (const name of ['cri-resize-shim', 'resizectl']) put(join(tree, `dist/${name}.js`), program);
  const other = join(tree, 'other');
  const node = { program: other, license: other, version: '1', package: 'node', integrity: '' };
  const facts = {
    ...{ root: resolve('.'), name: 'cri-resize-shim', version: '0.2.0' },
    description: 'A.',
    arch: 'x64',
  };
  deb = await makeDeb(facts, { tree, node, sbom: other, target: made });
});
afterAll(() => rmSync(made, { recursive: true }));
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'deb-root-'));
  for (const folder of ['info', 'updates']) mkdirSync(join(root, 'var/lib/dpkg', folder), { recursive: true });
  for (const file of ['status', 'available']) put(join(root, 'var/lib/dpkg', file), '');
});
afterEach(() => rmSync(root, { recursive: true }));

function put(path: string, text: string): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}
const on = (path: string): string => join(root, path);
const text = (path: string): string => readFileSync(on(path), 'utf8');
const existing = (): string[] => FILES.filter((path) => existsSync(on(path)));

async function dpkg(...args: readonly string[]): Promise<string> {
  const forced = ['depends', 'architecture', 'script-chrootless', 'not-root'].join(',');
  const { all } = await execa('dpkg', [`--root=${root}`, `--force-${forced}`, ...args], { all: true });
  return all;
}

/** The package as that of 0.1: the files are conffiles, with the content that the package has for them. */
async function withConffiles(): Promise<string> {
  const folder = join(made, 'old');
  await execa('dpkg-deb', ['-R', deb, folder]);
  for (const path of [CONFIG, FLAGS]) put(join(folder, path), 'as packaged\n');
  for (const script of ['preinst', 'postinst', 'postrm']) rmSync(join(folder, 'DEBIAN', script), { force: true });
  put(join(folder, 'DEBIAN/conffiles'), `${CONFIG}\n${FLAGS}\n`);
  const control = join(folder, 'DEBIAN/control');
  put(control, readFileSync(control, 'utf8').replace('0.2.0', '0.1.0'));
  const old = join(made, 'old.deb');
  await execa('dpkg-deb', ['--build', folder, old]);
  rmSync(folder, { recursive: true });
  return old;
}

test('a new installation has both configuration files, and a second installation keeps changes to them', async () => {
  await dpkg('--install', deb);
  expect(text(CONFIG)).toContain('#stateFolder: /var/lib/cri-resize-shim\n');
  expect(text(FLAGS)).toBe('CRI_RESIZE_SHIM_FLAGS="--config /etc/cri-resize-shim/config.yaml"\n');
  put(on(CONFIG), 'intercept: false\n');
  await dpkg('--install', deb);
  expect(text(CONFIG)).toBe('intercept: false\n');
});

test('a purge removes journal and configuration', async () => {
  await dpkg('--install', deb);
  put(on(JOURNAL), 'records');
  await dpkg('--remove', 'cri-resize-shim');
  expect(existing()).toEqual(FILES);
  // A masked unit.
  mkdirSync(on('/etc/systemd/system'), { recursive: true });
  symlinkSync('/dev/null', on('/etc/systemd/system/cri-resize-shim.service'));
  await dpkg('--purge', 'cri-resize-shim');
  expect(existing()).toEqual([]);
});

test.each(['/etc/systemd/system/cri-resize-shim.service', '/usr/local/lib/cri-resize-shim/package.json'])(
  'a purge keeps journal and configuration of the installation that has %s',
  async (path) => {
    await dpkg('--install', deb);
    await dpkg('--remove', 'cri-resize-shim');
    put(on(path), '');
    put(on(JOURNAL), 'records');
    expect(await dpkg('--purge', 'cri-resize-shim')).toContain('Another installation of cri-resize-shim');
    expect(existing()).toEqual(FILES);
  },
);

test('an upgrade from a package with conffiles keeps them, and a later purge does not remove them', async () => {
  await dpkg('--install', await withConffiles());
  put(on(CONFIG), 'intercept: false\n');
  await dpkg('--install', deb);
  expect([text(CONFIG), text(FLAGS)]).toEqual(['intercept: false\n', 'as packaged\n']);
  await dpkg('--remove', 'cri-resize-shim');
  put(on('/etc/systemd/system/cri-resize-shim.service'), '');
  put(on(JOURNAL), 'records');
  await dpkg('--purge', 'cri-resize-shim');
  expect(existing()).toEqual(FILES);
  expect(text(CONFIG)).toBe('intercept: false\n');
});

test('the configuration files are back after an upgrade that could not be unpacked', async () => {
  await dpkg('--install', await withConffiles());
  const broken = join(made, 'broken.deb');
  const content = readFileSync(deb);
  writeFileSync(broken, content.subarray(0, content.length - 200));
  await expect(dpkg('--install', broken)).rejects.toThrow('cri-resize-shim');
  expect([text(CONFIG), text(FLAGS)]).toEqual(['as packaged\n', 'as packaged\n']);
});
