import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { expandGlob, flagsIn, serviceFlags, unitPlaces, withServiceFlags } from '../../../src/install/host/systemd.ts';

let folder: string;

describe('glob patterns of systemd', () => {
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'glob-'));
    for (const name of ['a', 'b']) mkdirSync(join(folder, name));
    for (const name of ['a/b.env', 'a/B.env', 'a/_.env', 'a/.z.env', 'a/x-y.env', 'a/{b,B}.env', 'a/[.conf', 'b/b.env'])
      writeFileSync(join(folder, name), '');
  });

  afterAll(() => rmSync(folder, { recursive: true }));

  test.each([
    ['a/*.env', ['a/B.env', 'a/_.env', 'a/b.env', 'a/x-y.env', 'a/{b,B}.env']],
    ['a/?.env', ['a/B.env', 'a/_.env', 'a/b.env']],
    ['a/[!_B].env', ['a/b.env']],
    ['a/[A-C].env', ['a/B.env']],
    ['a/.?.env', ['a/.z.env']],
    ['[ab]/b.env', ['a/b.env', 'b/b.env']],
    ['*/{b,B}.env', ['a/{b,B}.env']],
    ['a/[[]*', ['a/[.conf']],
    ['a/\\[.c*', ['a/[.conf']],
    ['a/[.conf', ['a/[.conf']],
    ['none/*.env', []],
    ['a/*.yaml', []],
    ['none/b.env', ['none/b.env']],
  ])('the pattern %s expands to %j', async (pattern, expected) => {
    expect(await expandGlob(join(folder, pattern))).toEqual(expected.map((name) => join(folder, name)));
  });
});

test.each([
  ['CRI_RESIZE_SHIM_FLAGS="--config /etc/a.yaml"\n', ['--config', '/etc/a.yaml']],
  ["CRI_RESIZE_SHIM_FLAGS='--config /etc/a.yaml  --intercept=false'", ['--config', '/etc/a.yaml', '--intercept=false']],
  ['CRI_RESIZE_SHIM_FLAGS=--log-level=debug\n', ['--log-level=debug']],
  ['# CRI_RESIZE_SHIM_FLAGS="--a"\nOTHER=1\n', []],
  ['CRI_RESIZE_SHIM_FLAGS="--a"\nCRI_RESIZE_SHIM_FLAGS="--b"\n', ['--b']],
  ['CRI_RESIZE_SHIM_FLAGS="--a \\\n--b"\n', ['--a', '--b']],
  ['CRI_RESIZE_SHIM_FLAGS=""\n', []],
  ['', []],
])('reads the flags of the service in %j', (text, flags) => {
  expect(flagsIn(text)).toEqual(flags);
});

test('the service has no flags if its flags file does not exist', async () => {
  expect(await serviceFlags('/no/such/file')).toEqual([]);
  await expect(serviceFlags('/')).rejects.toThrow('EISDIR');
});

describe('places of the units', () => {
  beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'units-'))));

  afterEach(() => rmSync(folder, { recursive: true }));

  function dropIn(name: string, ...lines: readonly string[]): void {
    const file = join(folder, `cri-resize-shim.${name}.conf`);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, `${lines.join('\n')}\n`);
  }

  const SOCKET = '/run/cri-resize-shim/cri-resize-shim.sock';
  const OWN = ['/var/lib/cri-resize-shim', '/var/lib/cri-resize-shim-bypass'];

  test('without drop-ins, the sockets and writable folders are those of the shipped units', async () => {
    expect(await unitPlaces(folder)).toEqual({ sockets: [SOCKET], writable: [...OWN, '/run', '/var/lib/kubelet'] });
    const shipped = (unit: string): string => readFileSync(`systemd/cri-resize-shim.${unit}`, 'utf8');
    expect(shipped('socket').match(/^Listen.*/gm)).toEqual([`ListenStream=${SOCKET}`]);
    expect(shipped('service').match(/^(StateDirectory|ProtectSystem|ReadWritePaths|BindPaths)=.*/gm)).toEqual([
      'StateDirectory=cri-resize-shim cri-resize-shim-bypass',
      'ProtectSystem=strict',
      'ReadWritePaths=/run -/var/lib/kubelet',
    ]);
  });

  test('a drop-in replaces or adds sockets and writable folders', async () => {
    dropIn('socket.d/b', '[Socket]', 'ListenStream=', 'ListenStream=/run/other/cri.sock');
    dropIn('socket.d/a', '[Socket]', '# ListenStream=/run/no.sock', 'ListenStream=/run/hidden.sock');
    dropIn('service.d/x', '[Service]', 'ReadWritePaths=-/srv/a \\', '  "/srv/b c"', 'BindPaths=/dev/x:/srv/d:rbind');
    const { sockets, writable } = await unitPlaces(folder);
    expect(sockets).toEqual(['/run/other/cri.sock']);
    expect(writable.slice(-3)).toEqual(['/srv/a', '/srv/b c', '/srv/d']);
  });

  test('a service that is not confined may write to every folder', async () => {
    dropIn('service.d/x', '[Service]', 'ProtectSystem=no');
    expect((await unitPlaces(folder)).writable).toEqual(['/']);
  });
});

test.each([
  [undefined, ['--config', '/c'], 'CRI_RESIZE_SHIM_FLAGS="--config /c"\n'],
  [
    '# a\nCRI_RESIZE_SHIM_FLAGS="--config /c"\nX=1\n',
    ['--a', 'b'],
    '# a\nCRI_RESIZE_SHIM_FLAGS="--config /c"\nX=1\nCRI_RESIZE_SHIM_FLAGS="--config /c --a b"\n',
  ],
  ['CRI_RESIZE_SHIM_FLAGS=--config=/c\n', [], 'CRI_RESIZE_SHIM_FLAGS=--config=/c\n'],
  ['X=1', ['--a'], 'X=1\nCRI_RESIZE_SHIM_FLAGS="--a"\n'],
  [
    'CRI_RESIZE_SHIM_FLAGS="--config \\\n/c"\n',
    ['--a'],
    'CRI_RESIZE_SHIM_FLAGS="--config \\\n/c"\nCRI_RESIZE_SHIM_FLAGS="--config /c --a"\n',
  ],
  ['X=1 \\\n', ['--a'], 'X=1 \\\n\nCRI_RESIZE_SHIM_FLAGS="--a"\n'],
])('the environment file %j gets the flags %j', (text, more, expected) => {
  expect(withServiceFlags(text, more)).toBe(expected);
  expect(flagsIn(expected).slice(-more.length)).toEqual(more.length === 0 ? flagsIn(expected) : more);
});
