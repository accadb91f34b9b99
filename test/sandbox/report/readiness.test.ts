import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { CgroupTree } from '../../../src/cgroups/tree.ts';
import type { PodJournal } from '../../../src/sandbox/journal/pod-journal.ts';
import { readinessOf } from '../../../src/sandbox/report/readiness.ts';
import { MemoryVolumes } from '../../../src/tmpfs/memory-volumes.ts';
import { FakeRuntime } from '../../support/fake-runtime.ts';

let runtime: FakeRuntime;
let root: string;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  root = mkdtempSync(join(tmpdir(), 'cgroup-'));
});
afterEach(async () => {
  await runtime.close();
  if (existsSync(root)) rmSync(root, { recursive: true });
});

const cgroups = async () => {
  const { ready, checks } = await readinessOf({ ...runtime.node, tree: new CgroupTree(root) });
  return { ready, check: checks.find(({ name }) => name === 'cgroups') };
};

test('a node with cgroup v2 is ready', async () => {
  writeFileSync(join(root, 'cgroup.controllers'), 'cpu memory\n');
  expect((await cgroups()).check).toEqual({ name: 'cgroups', ready: true, says: 'version 2' });
});

test.each([
  ['cgroup v1', 'found version 1, or the hybrid layout, at', () => undefined],
  ['no cgroup file system', 'found nothing at', () => rmSync(root, { recursive: true })],
])('KEP-1287: a node with %s is not ready, and readiness reports the reason', async (_, text, make) => {
  make();
  const { ready, check } = await cgroups();
  expect([ready, check?.ready]).toEqual([false, false]);
  expect(check?.says).toContain(text);
});

test('a node is not ready, with the reason, if its mounts cannot be read through the configured process', async () => {
  const volumesOf = async (throughPid: number) => {
    const volumes = new MemoryVolumes({ kubeletRoot: root, throughPid });
    const { ready, checks } = await readinessOf({ ...runtime.node, volumes });
    return { ready, check: checks.find(({ name }) => name === 'volumes') };
  };
  // No process has an id above the maximum of the kernel.
  const { ready, check } = await volumesOf(4_194_304);
  expect([ready, check?.ready]).toEqual([false, false]);
  expect(check?.says).toMatch(/^cannot be read: ENOENT.*\/proc\/4194304\/root/);
  expect((await volumesOf(process.pid)).check).toMatchObject({ ready: true });
});

test('withheld records fail a check of their own, and the node stays ready', async () => {
  writeFileSync(join(root, 'cgroup.controllers'), 'cpu memory\n');
  await new Promise<void>((resolve) => runtime.node.backend.onConnected(resolve));
  const records = async (withheld: { readonly newer: number; readonly unread: number }) => {
    const journal = Object.assign(Object.create(runtime.node.journal) as PodJournal, {
      readiness: () => Promise.resolve({ ready: true }),
      withheld: () => Promise.resolve(withheld),
    });
    const { ready, checks } = await readinessOf({ ...runtime.node, journal, tree: new CgroupTree(root) });
    return { ready, check: checks.find(({ name }) => name === 'records') };
  };
  expect(await records({ newer: 0, unread: 0 })).toEqual({ ready: true, check: undefined });
  const says =
    'resizes of their pods are rejected: 2 of a newer version of the shim: install it again; 1 that the disk does not return: check the disk';
  expect(await records({ newer: 2, unread: 1 })).toEqual({
    ready: true,
    check: { name: 'records', ready: false, says, isOptional: true },
  });
});
