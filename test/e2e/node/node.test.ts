import { existsSync, readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';
import { expect, test } from 'vitest';

// Assumptions of all other end-to-end tests about their node.

const variable = (name: string): string => {
  const value = process.env[name];
  if (value === undefined) throw new Error(`$${name} is not set: run this inside the test node (npm run node -- ...)`);
  return value;
};
const cgroup = '/sys/fs/cgroup';
const read = (path: string): string => readFileSync(path, 'utf8').trim();

test('cgroup v2 controllers are enabled down to the pods', () => {
  for (const group of ['', 'kubepods', 'kubepods/burstable', 'kubepods/besteffort']) {
    const enabled = read(join(cgroup, group, 'cgroup.subtree_control')).split(' ');
    expect(enabled).toEqual(expect.arrayContaining(['cpu', 'io', 'memory', 'pids']));
  }
});

test('containerd has the requested version, and the images that pods need', async () => {
  const { stdout } = await execa('ctr', ['version']);
  const server = /Server:\s+Version:\s+v?(\d+\.\d+\.\d+)/.exec(stdout)?.[1];
  expect(server).toBe(variable('CONTAINERD_VERSION'));
  const images = await execa('ctr', ['-n', 'k8s.io', 'images', 'list', '-q']);
  expect(images.stdout.split('\n')).toEqual(expect.arrayContaining(['localhost/busybox:1', 'localhost/pause:1']));
});

test('containerd can be stopped, killed and started again', async () => {
  const answers = async (): Promise<boolean> =>
    (await execa('ctr', ['version'], { reject: false, timeout: 60_000 })).exitCode === 0;
  await execa('node-containerd', ['stop']);
  expect(existsSync('/run/node/containerd.pid')).toBe(false);
  await execa('node-containerd', ['start']);
  expect(await answers()).toBe(true);
  await execa('node-containerd', ['kill']);
  await execa('node-containerd', ['start']);
  expect(await answers()).toBe(true);
});

test('the test node can write to no folder of the host except NODE_OUT', async () => {
  const mounts = read('/proc/self/mounts')
    .split('\n')
    .map((line) => line.split(' '));
  const writable = mounts.filter(
    ([, , type = '', options]) => ['hostfs', 'virtiofs'].includes(type) && !options?.startsWith('ro'),
  );
  expect(writable.map(([, place]) => place)).toEqual([variable('NODE_OUT')]);
  expect(mounts.find(([, place]) => place === '/')?.[2]).toBe('overlay');
  // The root accepts writes, which go to memory.
  await writeFile('/node-test', 'gone with the node');
  await writeFile(join(variable('NODE_OUT'), 'node-test'), "the host's to read");
});
