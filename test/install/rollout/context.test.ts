import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { driftPlaces } from '../../../src/install/rollout/context.ts';

let folder: string;
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'context-'))));
afterEach(() => rmSync(folder, { recursive: true }));

const host = { procRoot: '/proc', hostRoot: '/proc/1/root' };

test('the socket and the state folder of the shim are those of the given configuration', async () => {
  const config = join(folder, 'config.yaml');
  writeFileSync(config, 'listen: unix:///run/other/cri.sock\nstateFolder: /srv/shim\n');
  expect(await driftPlaces(config)).toEqual({ ...host, listen: '/run/other/cri.sock', stateFolder: '/srv/shim' });
});

test('without a configuration, the socket and the state folder of the shim are the defaults', async () => {
  const defaults = { listen: '/run/cri-resize-shim/cri-resize-shim.sock', stateFolder: '/var/lib/cri-resize-shim' };
  expect(await driftPlaces(undefined)).toEqual({ ...host, ...defaults });
});
