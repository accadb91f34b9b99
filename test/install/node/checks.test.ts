import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Finding, type Node, diagnose, worstOf } from '../../../src/install/node/index.ts';
import { doctorText } from '../../../src/resizectl/commands/doctor.ts';
import { FakeInstallNode } from '../../support/fake-install-node.ts';

// A folder in the place of a node; what a real one says is in test/e2e/command-line/doctor.test.ts.
let paper: FakeInstallNode;
beforeEach(() => (paper = new FakeInstallNode()));
afterEach(() => paper.remove());

async function found(check: string, change: Partial<Node> = {}): Promise<Finding> {
  const all = await diagnose({ ...paper.node, ...change });
  return all.find((finding) => finding.check === check)!;
}

test.each([
  ['user', { uid: 0 }, 'ok', 'root'],
  ['user', { uid: 1000 }, 'failed', 'uid 1000'],
  ['node', { nodeVersion: '24.0.0' }, 'ok', 'Node 24.0.0'],
  ['node', { nodeVersion: '26.10.0' }, 'ok', 'Node 26.10.0'],
  ['node', { nodeVersion: '20.20.2' }, 'failed', 'Node 20.20.2 is too old'],
  ['node', { nodeVersion: '23.11.1' }, 'failed', 'Node 23.11.1 is too old'],
  ['kernel', { kernel: '6.1.0-18-amd64' }, 'ok', 'Linux 6.1.0-18-amd64'],
  ['kernel', { kernel: '5.15.0' }, 'warning', 'Linux 5.15.0 has no memory.reclaim'],
  ['kernel', { kernel: '4.19.0' }, 'warning', 'Linux 4.19.0 has neither memory.reclaim nor fspick'],
  ['cgroups', { cgroupRoot: '/nowhere' }, 'failed', 'no cgroup file system at /nowhere'],
  ['systemd', {}, 'ok', 'init system of this node'],
  ['systemd', { systemdFolder: '/nowhere' }, 'warning', 'not the init system of this node'],
  ['containerd', {}, 'failed', 'containerd.sock: connect ENOENT'],
  ['shim', {}, 'ok', 'not running: no socket at '],
  ['kubelet', { systemdFolder: '/nowhere' }, 'warning', 'not checked: systemd is not the init system of this node'],
  ['state room', {}, 'ok', ' MiB free for '],
  ['state folder', {}, 'ok', 'is created at the first start'],
] as const)('%s with %o: %s, %s', async (check, change, result, says) => {
  const finding = await found(check, change);
  expect(finding).toMatchObject({ check, result });
  expect(finding.found).toContain(says);
  expect(finding.remedy === '').toBe(result === 'ok');
});

test('kubelet goes to containerd, or through the shim', async () => {
  paper.unit({ commandLine: ['kubelet', '--container-runtime-endpoint=unix:///run/containerd/containerd.sock'] });
  expect(await found('kubelet')).toMatchObject({
    result: 'warning',
    found: 'uses unix:///run/containerd/containerd.sock, not the shim (flag)',
    remedy: `set --container-runtime-endpoint=unix://${paper.node.listen}`,
  });
  for (const address of [`unix://${paper.node.listen}`, `unix:${paper.node.listen}`, paper.node.listen]) {
    paper.unit({ commandLine: ['kubelet', `--container-runtime-endpoint=${address}`] });
    expect(await found('kubelet')).toMatchObject({ result: 'ok', found: 'uses the shim (flag)' });
  }
  paper.unit({ state: 'inactive' });
  expect(await found('kubelet')).toMatchObject({ result: 'warning', found: 'kubelet.service is inactive' });
  paper.unit(undefined);
  expect(await found('kubelet')).toMatchObject({ result: 'warning', found: 'no unit kubelet.service' });
});

test('what is left of a shim on its socket does not answer', async () => {
  writeFileSync(paper.node.listen, '');
  expect(await found('shim')).toMatchObject({
    result: 'warning',
    found: expect.stringContaining('does not answer') as string,
  });
});

test('a state folder that others may write to, or of somebody else, is not the journal’s', async () => {
  const folder = join(paper.folder, 'state');
  mkdirSync(folder);
  chmodSync(folder, 0o777);
  expect(await found('state folder')).toMatchObject({
    result: 'failed',
    found: expect.stringContaining('mode 777') as string,
  });
  chmodSync(folder, 0o700);
  // Whoever runs this test has made it.
  const uid = process.geteuid?.();
  expect(await found('state folder')).toMatchObject(
    uid === 0 ? { result: 'ok' } : { result: 'failed', found: expect.stringContaining(`uid ${uid}`) as string },
  );
});

test('as a whole it is as well as the worst, and what to do comes last', () => {
  const finding = (check: string, result: Finding['result'], remedy = ''): Finding => ({
    check,
    result,
    found: 'x',
    remedy,
  });
  expect(worstOf([])).toBe('ok');
  expect(worstOf([finding('a', 'ok'), finding('b', 'warning', 'c')])).toBe('warning');
  expect(worstOf([finding('a', 'failed', 'd'), finding('b', 'warning', 'c')])).toBe('failed');
  expect(doctorText([finding('a', 'ok'), finding('b', 'failed', 'do this')])).toBe(
    'CHECK   RESULT   FOUND\na       ok       x\nb       failed   x\n\nWhat to do:\n  b:   do this\n',
  );
  expect(doctorText([finding('a', 'ok')])).not.toContain('What to do');
});
