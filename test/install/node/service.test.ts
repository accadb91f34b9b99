import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { restartOnRollback } from '../../../src/install/node/service.ts';
import type { Site } from '../../../src/install/host/site.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

let fake: FakeInstallNode;
beforeEach(() => (fake = new FakeInstallNode()));
afterEach(() => fake.remove());

/** The calls of systemctl that change something, while an upgrade is rolled back. */
async function rolledBack(onFailure: string, loaded: string): Promise<readonly string[]> {
  const log = join(fake.folder, 'log');
  fake.systemctl(`case "$*" in
*OnFailure*) echo 'OnFailure=${onFailure}' ;;
show*takeover*) printf 'LoadState=${loaded}\\nActiveState=inactive\\n' ;;
show*) printf 'LoadState=${loaded}\\nActiveState=active\\n' ;;
*) echo "$*" >>${log} ;;
esac`);
  // No shim answers here. Each systemctl has this time too, and is a script that a busy machine may start late.
  const wait = { timeoutMs: 5000, signal: new AbortController().signal };
  await expect(restartOnRollback({ node: fake.node, wait } as Site).undo()).rejects.toThrow('does not answer');
  return readFileSync(log, 'utf8').trim().split('\n');
}

const restart = 'restart -- cri-resize-shim.service';

test('a rollback to units without the bypass ends the bypass that serves meanwhile', async () => {
  expect(await rolledBack('', 'not-found')).toEqual([
    restart,
    'stop -- cri-resize-shim-fallback.service',
    'reset-failed -- cri-resize-shim-fallback.service',
    'stop -- cri-resize-shim-bypass.service',
    'reset-failed -- cri-resize-shim-bypass.service',
  ]);
});

test('a rollback to units with the bypass leaves its end to them', async () => {
  expect(await rolledBack('cri-resize-shim-fallback.service', 'loaded')).toEqual([restart]);
});
