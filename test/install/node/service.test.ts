import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Site, SOCKETS, UNITS } from '../../../src/install/host/site.ts';
import {
  restartOnRollback,
  retryOnRollback,
  starting,
  stopping,
  type UnitsState,
  unitsState,
} from '../../../src/install/node/service.ts';
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
  // No shim answers here. With a timeout of 0 s, the first check is the last one. For systemctl, 0 means no limit.
  const wait = { timeoutMs: 0, signal: new AbortController().signal };
  await expect(restartOnRollback({ node: fake.node, wait } as Site).undo()).rejects.toThrow('does not answer');
  return readFileSync(log, 'utf8').trim().split('\n');
}

const restart = 'restart -- cri-resize-shim.service';

test('a rollback to units without a bypass stops the bypass that serves in the meantime', async () => {
  expect(await rolledBack('', 'not-found')).toEqual([
    restart,
    'stop -- cri-resize-shim-fallback.service',
    'reset-failed -- cri-resize-shim-fallback.service',
    'stop -- cri-resize-shim-bypass.service',
    'reset-failed -- cri-resize-shim-bypass.service',
  ]);
});

test('a rollback to units with a bypass does not stop the bypass itself', async () => {
  expect(await rolledBack('cri-resize-shim-fallback.service', 'loaded')).toEqual([restart]);
});

const fallback = 'cri-resize-shim-fallback.service';
const nothing: UnitsState = { active: [], enabled: [], hasFailed: false, bypass: { isUsed: false, isActive: false } };

/** Rolls back the start of the units while the fallback restarts a failing shim, which cancels this many stops. */
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
  const wait = { timeoutMs: 60_000, signal: new AbortController().signal };
  await starting({ node: fake.node, wait } as Site, nothing).undo();
  return readFileSync(log, 'utf8').trim().split('\n');
}

test('links to nothing or to a device among the units do not prevent the start of the units', async () => {
  const unitFolder = join(fake.folder, 'system');
  mkdirSync(unitFolder);
  symlinkSync('/dev/null', join(unitFolder, 'masked.wants'));
  symlinkSync('/nowhere', join(unitFolder, 'dangling.wants'));
  fake.systemctl(`case "$*" in restart*) echo 'Job for cri-resize-shim.service failed.' >&2; exit 1 ;; esac`);
  const wait = { timeoutMs: 60_000, signal: new AbortController().signal };
  const started = starting({ node: fake.node, wait, unitFolder } as Site, nothing).do();
  await expect(started).rejects.toThrow('Job for cri-resize-shim.service failed.');
});

const stopAll = 'stop -- cri-resize-shim.service cri-resize-shim.socket cri-resize-shim-resize.socket';

test('a stop that systemd cancels for a start by the fallback is repeated after the fallback was stopped', async () => {
  const calls = (await startRolledBack(2)).filter((call) => call.startsWith('stop '));
  const ends = ['stop -- cri-resize-shim-fallback.service', 'stop -- cri-resize-shim-bypass.service'];
  const ofStarted = calls.filter((call) => call !== stopAll).slice(0, calls.length / 3 - 1);
  expect(ofStarted).toEqual(expect.arrayContaining(ends));
  expect(calls).toEqual([1, 2, 3].flatMap(() => [stopAll, ...ofStarted]));
});

test('a rollback fails if systemd cancels each stop', async () => {
  await expect(startRolledBack(9)).rejects.toThrow('Job for cri-resize-shim.service canceled.');
  expect(readFileSync(join(fake.folder, 'left'), 'utf8')).toBe('x'.repeat(4));
});

/** A node that uses its bypass: the sockets are open, and the service is not active. */
const bypassed = (hasFailed: boolean, isActive = true): UnitsState => ({
  ...{ active: SOCKETS, enabled: UNITS, hasFailed },
  bypass: { isUsed: true, isActive },
});

/** The calls of systemctl that change something. */
async function callsOf(work: (site: Site) => Promise<void>): Promise<readonly string[]> {
  const log = fake.at('log');
  fake.systemctl(`case "$*" in
show*) printf 'LoadState=loaded\\nActiveState=active\\n' ;;
*) echo "$*" >>${log} ;;
esac`);
  await work(fake.site({ wait: { timeoutMs: 60_000, signal: new AbortController().signal } }));
  return readFileSync(log, 'utf8').trim().split('\n');
}

const stopShim = ['stop -- cri-resize-shim.service', `stop -- ${fallback}`];
const serve = ['stop -- cri-resize-shim-takeover.service', 'start -- cri-resize-shim-bypass.service'];
const watch = `start --no-block -- ${fallback}`;

test.each([
  ['has failed, and is tried again', bypassed(true), [...stopShim, ...serve, watch]],
  ['was stopped', bypassed(false), [...stopShim, 'reset-failed -- cri-resize-shim.service', ...serve, watch]],
  ['has just failed', bypassed(true, false), [...stopShim, watch]],
])('a failed start is rolled back to the bypass of a shim that %s', async (_, before, expected) => {
  expect(await callsOf((site) => starting(site, before).undo())).toEqual(expected);
});

const retry = 'restart --no-block -- cri-resize-shim.service';

// The fallback starts a shim that has failed, but not a stopped one, such as a shim that has started meanwhile.
test('the rollback of an installation starts a shim that had failed again, without waiting for it', async () => {
  expect(await callsOf(() => retryOnRollback().undo())).toEqual([retry]);
});

test.each([
  ['has failed, and is tried again', true, [retry]],
  ['was stopped', false, []],
])(
  'a failed removal is rolled back to the bypass of a shim that %s, without waiting for it',
  async (_, hasFailed, more) => {
    const calls = await callsOf((site) => stopping(site, bypassed(hasFailed)).undo());
    expect(calls).toEqual([`enable -- ${UNITS.join(' ')}`, `start -- ${SOCKETS.join(' ')}`, ...serve, watch, ...more]);
  },
);

test.each([
  ['has failed', 'failed', bypassed(true)],
  ['is started again by the fallback', 'activating', bypassed(true)],
  ['was stopped', 'inactive', bypassed(false)],
  ['runs, until the clients use it', 'active', { ...bypassed(false), active: UNITS }],
])('the state of the units includes the bypass that serves while the shim %s', async (_, state, expected) => {
  fake.systemctl(`case "$*" in
*OnFailure*) echo 'OnFailure=${fallback}' ;;
*'-- cri-resize-shim.service') printf 'ActiveState=${state}\\nUnitFileState=enabled\\n' ;;
*) printf 'ActiveState=active\\nUnitFileState=enabled\\n' ;;
esac`);
  expect(await unitsState()).toMatchObject(expected);
});
