import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { applyChanges } from '../../../src/install/host/change.ts';
import { planSwitch } from '../../../src/install/node/switch.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

let fake: FakeInstallNode;
beforeEach(() => (fake = new FakeInstallNode()));
afterEach(() => fake.remove());

const CONFIG = 'listen: /run/a.sock\n';
const restart = 'restart -- cri-resize-shim.service';

/** Switches off the shim on a node where it does not start. Returns the result and systemctl's changing calls. */
async function switchedOff(state: string, sockets = 'active') {
  fake.put('etc/config.yaml', CONFIG);
  fake.put('etc/flags', `CRI_RESIZE_SHIM_FLAGS="--config ${fake.at('etc/config.yaml')}"\n`);
  fake.program('journalctl', 'exit 0');
  fake.systemctl(`case "$*" in
*OnFailure*) echo 'OnFailure=cri-resize-shim-fallback.service' ;;
show*'-- cri-resize-shim.service') printf 'ActiveState=${state}\\nUnitFileState=enabled\\n' ;;
show*.socket) printf 'ActiveState=${sockets}\\nUnitFileState=enabled\\n' ;;
show*) printf 'LoadState=loaded\\nActiveState=${sockets}\\n' ;;
*) echo "$*" >>${fake.at('log')} ;;
esac
[ "$*" != '${restart}' ] || { echo 'Job for cri-resize-shim.service failed.' >&2; exit 1; }`);
  const wait = { timeoutMs: 60_000, signal: new AbortController().signal };
  const { changes } = await planSwitch(fake.node, { isOn: false, wait, unitFolder: fake.at('units') });
  const lines: string[] = [];
  const result = await applyChanges(changes, (line) => lines.push(line), wait.signal);
  expect(readFileSync(fake.at('etc/config.yaml'), 'utf8')).toBe(CONFIG);
  return { result, text: lines.join('\n'), calls: readFileSync(fake.at('log'), 'utf8').trim().split('\n') };
}

test.each(['failed', 'activating'])(
  'the rollback of a switch starts a shim that had failed (%s) again, without waiting for it',
  async (state) => {
    const { result, text, calls } = await switchedOff(state);
    expect(text).not.toContain('NOT rolled back');
    expect(result).toBe('undone');
    expect(calls).toEqual([restart, 'restart --no-block -- cri-resize-shim.service']);
  },
);

test('the rollback of a switch stops the shim again if it was stopped, and starts the bypass again', async () => {
  const { result, calls } = await switchedOff('inactive');
  expect(result).toBe('undone');
  expect(calls).toEqual([
    restart,
    'stop -- cri-resize-shim.service',
    'stop -- cri-resize-shim-fallback.service',
    'reset-failed -- cri-resize-shim.service',
    'stop -- cri-resize-shim-takeover.service',
    'start -- cri-resize-shim-bypass.service',
    'start --no-block -- cri-resize-shim-fallback.service',
  ]);
});

test('the rollback of a switch closes the sockets again if they were stopped with the shim', async () => {
  const { result, calls } = await switchedOff('inactive', 'inactive');
  expect(result).toBe('undone');
  expect(calls).toContain('stop -- cri-resize-shim.service cri-resize-shim.socket cri-resize-shim-resize.socket');
});

test('the rollback of a switch fails if a shim that served before does not start again', async () => {
  const { result, text, calls } = await switchedOff('active');
  expect(text).toContain('NOT rolled back');
  expect(result).toBe('undo failed');
  expect(calls).toEqual([restart, restart]);
});

test('a switch on a node without the shim is rejected, and says what to run', async () => {
  const wait = { timeoutMs: 60_000, signal: new AbortController().signal };
  await expect(planSwitch(fake.node, { isOn: false, wait, unitFolder: fake.at('units') })).rejects.toMatchObject({
    message: 'cri-resize-shim is not installed on this node',
    remedy: 'run resizectl install',
  });
});
