import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { unitPlaces } from '../../../src/install/host/systemd.ts';

let folder: string;
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
