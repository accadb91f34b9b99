import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { noLog } from '../../src/core/observe/interfaces.ts';
import { writeBypassTarget } from '../../src/core/systemd/bypass.ts';
import { removing, writing } from '../../src/install/host/files.ts';
import { placing, removingProgram } from '../../src/install/node/program.ts';
import { starting } from '../../src/install/node/service.ts';
import { diskOrder } from '../support/journal/disk-order.ts';
import { FakeInstallNode } from '../support/kubernetes/fake-install-node.ts';

// A power cut loses what is not on the disk. A rename may be there before the data of its file.
vi.mock(import('node:fs/promises'), async (original) =>
  (await import('../support/journal/disk-order.ts')).noting(await original()),
);

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'power-'));
  diskOrder.length = 0;
});
afterEach(() => rmSync(folder, { recursive: true }));

const order = (): readonly string[] =>
  diskOrder.map((line) =>
    line
      .replaceAll(`${folder}/`, '')
      .replaceAll(folder, '.')
      .replaceAll(/\.[0-9a-f]{8}\b/g, '.x'),
  );

test('a file that was written or removed is on the disk, with its name, before the next change', async () => {
  const change = writing(join(folder, 'a'), 'new');
  await change.do();
  expect(order()).toEqual(['sync a.x', 'rename a.x a', 'sync .']);
  diskOrder.length = 0;
  await removing(join(folder, 'a')).do();
  expect(order()).toEqual(['rm a', 'sync .']);
  diskOrder.length = 0;
  await change.undo();
  expect(order()).toEqual(['rm a', 'sync .']);
});

test('a program is on the disk before it replaces the previous one', async () => {
  writeFileSync(join(folder, 'single'), 'program');
  const places = { program: { kind: 'executable', file: join(folder, 'single') }, to: join(folder, 'to') } as const;
  const change = placing(places);
  await change.do();
  expect(order().filter((line) => !line.startsWith('rm '))).toEqual([
    'sync to.new/bin/cri-resize-shim',
    'rename to.new to',
    'sync .',
  ]);
  diskOrder.length = 0;
  await removingProgram(join(folder, 'to')).do();
  expect(order().slice(-2)).toEqual(['rename to to.old', 'sync .']);
});

test('the target of the bypass is on the disk before it replaces the previous one', async () => {
  await writeBypassTarget(join(folder, 'target'), '/run/a.sock', noLog);
  expect(order()).toEqual(['sync target.new', 'rename target.new target', 'sync .']);
});

test('the links of enabled units are on the disk before kubelet is pointed at the shim', async () => {
  const fake = new FakeInstallNode();
  try {
    const wants = ['multi-user.target.wants', 'sockets.target.wants'].map((name) => fake.at(`units/${name}`));
    for (const path of wants) mkdirSync(path);
    fake.systemctl('');
    const bypass = { isUsed: false, isActive: false };
    const state = { active: [], enabled: [], hasFailed: false, bypass };
    // No shim answers here. With a timeout of 0 s, the first check is the last one.
    const site = fake.site({ wait: { timeoutMs: 0, signal: new AbortController().signal } });
    await expect(starting(site, state).do()).rejects.toThrow('timed out');
    expect(diskOrder.toSorted()).toEqual([fake.at('units'), ...wants].map((path) => `sync ${path}`));
    expect(diskOrder.at(-1)).toBe(`sync ${fake.at('units')}`);
  } finally {
    fake.remove();
  }
});
