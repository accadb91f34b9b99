import { execa } from 'execa';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { parse } from 'yaml';
import { Served } from '../../support/e2e/served.ts';

/** `resizectl doctor` on a node with a real cgroup v2 and a real containerd, as an operator runs it. */

const CONTAINERD = 'unix:///run/containerd/containerd.sock';
let served: Served;

beforeAll(async () => {
  served = await Served.start({ name: 'doctor-test' });
});
afterAll(() => served.stop());

async function doctor(...args: readonly string[]): Promise<{ text: string; code: number | undefined }> {
  const { stdout, exitCode } = await execa('node', ['dist/resizectl.js', 'doctor', ...args], { reject: false });
  return { text: stdout, code: exitCode };
}

test('resizectl doctor reports cgroup v2, containerd, a ready shim, and a node without systemd', async () => {
  const { text, code } = await doctor();
  const { runtime_version } = await served.cri.version();
  expect(text).toMatch(/^cgroups +ok +v2 at \/sys\/fs\/cgroup, with .*cpu.*memory/m);
  expect(text).toMatch(/^containerd +ok /m);
  expect(text).toContain(` ${runtime_version} at /run/containerd/containerd.sock\n`);
  expect(text).toMatch(/^shim +ok +serves .*, ready$/m);
  expect(text).toMatch(/^systemd +warning +not the init system of this node$/m);
  expect(text).not.toMatch(/ failed /);
  expect(code).toBe(1);
});

test('resizectl doctor reports swapped sockets of shim and containerd, and sockets that do not exist', async () => {
  const shimItself = await doctor('--container-runtime-endpoint', served.shim.address);
  expect(shimItself.text).toMatch(/^containerd +failed +.* is served by a cri-resize-shim$/m);
  expect(shimItself.code).toBe(2);
  const other = await doctor('--listen', CONTAINERD, '-o', 'yaml');
  const { checks } = parse(other.text) as { checks: { check: string; result: string; found: string }[] };
  expect(checks.find(({ check }) => check === 'shim')).toMatchObject({
    result: 'failed',
    found: expect.stringContaining('is served by something else (containerd ') as string,
  });
  expect(other.code).toBe(2);
  const none = await doctor('--container-runtime-endpoint', 'unix:///run/none.sock', '-o', 'json');
  const { checks: findings } = JSON.parse(none.text) as { checks: { check: string }[] };
  expect(findings.find(({ check }) => check === 'containerd')).toMatchObject({
    result: 'failed',
    found: '/run/none.sock: connect ENOENT /run/none.sock',
  });
  expect(none.code).toBe(2);
});
