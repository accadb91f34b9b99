import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { restartOnRollback, starting } from '../../../src/install/node/service.ts';
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

/** Rolls back the start of the units while the fallback starts a failing shim again, which cancels as many stops. */
async function startRolledBack(cancels: number): Promise<readonly string[]> {
  const [log, left] = [join(fake.folder, 'log'), join(fake.folder, 'left')];
  writeFileSync(left, 'x'.repeat(cancels));
  fake.systemctl(`case "$*" in
show*) printf 'LoadState=loaded\\nActiveState=active\\n' ;;
*) echo "$*" >>${log} ;;
esac
case "$*" in
'stop -- cri-resize-shim.service '*)
  if [ -s ${left} ]; then
    truncate --size=-1 ${left}
    echo 'Job for cri-resize-shim.service canceled.' >&2
    exit 1
  fi ;;
esac`);
  const wait = { timeoutMs: 5000, signal: new AbortController().signal };
  await starting({ node: fake.node, wait } as Site, { active: [], enabled: [] }).undo();
  return readFileSync(log, 'utf8').trim().split('\n');
}

const stopAll = 'stop -- cri-resize-shim.service cri-resize-shim.socket cri-resize-shim-resize.socket';

test('a stop that systemd cancels for a start by the fallback is repeated once the fallback has stopped', async () => {
  const calls = (await startRolledBack(2)).filter((call) => call.startsWith('stop '));
  const ends = ['stop -- cri-resize-shim-fallback.service', 'stop -- cri-resize-shim-bypass.service'];
  const ofStarted = calls.filter((call) => call !== stopAll).slice(0, calls.length / 3 - 1);
  expect(ofStarted).toEqual(expect.arrayContaining(ends));
  expect(calls).toEqual([1, 2, 3].flatMap(() => [stopAll, ...ofStarted]));
});

test('a stop that systemd cancels each time fails the rollback', async () => {
  await expect(startRolledBack(9)).rejects.toThrow('Job for cri-resize-shim.service canceled.');
  expect(readFileSync(join(fake.folder, 'left'), 'utf8')).toBe('x'.repeat(4));
});
