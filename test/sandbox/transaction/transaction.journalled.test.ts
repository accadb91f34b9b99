import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { recover } from '../../../src/sandbox/transaction/recover.ts';
import type { PodDescription } from '../../../src/runtime/description.ts';
import { encode } from '../../../src/runtime/codec.ts';
import { FakeRuntime, SANDBOX } from '../../support/fake-runtime.ts';
import { ANSWER, ContainerUpdates } from '../../support/resize/container-updates.ts';

const POD = '/kubepods/pod1';
let runtime: FakeRuntime;
let updates: ContainerUpdates;
let pod: PodDescription;
/** Whether memory.high of the pod cannot be restored. */
let isStuck: boolean;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  updates = new ContainerUpdates(runtime);
  runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
  runtime.on('ListPodSandbox', () => encode('ListPodSandboxResponse', { items: [{ id: SANDBOX }] }));
  pod = (await runtime.node.registry.pod(SANDBOX))!;
  isStuck = true;
  const { tree } = runtime.node;
  const write = tree.write.bind(tree);
  vi.spyOn(tree, 'write').mockImplementation((cgroup, change) =>
    isStuck && cgroup === POD && change.file === 'memory.high' && change.value === 'max'
      ? Promise.reject(new Error('EIO: i/o error'))
      : write(cgroup, change),
  );
});
afterEach(() => runtime.close());

const left = () => runtime.node.journal.transactionOf(pod);
const found = (): string[] => [runtime.read('memory.max'), runtime.read('memory.high')];

describe('a failure to restore memory.high of the pod after the response', () => {
  beforeEach(async () => {
    expect(await updates.update(50 * MiB)).toBe(ANSWER);
    expect(found()).toEqual([String(250 * MiB), expect.not.stringMatching('max')]);
  });

  test('a memory.high of the pod that could not be restored stays in the journal, and recovery restores it', async () => {
    expect(left()).toMatchObject({ steps: [], highs: [{ cgroup: POD, memoryHigh: 'max' }] });
    expect(left()?.failed).toMatch(/EIO/);
    isStuck = false;
    expect(await recover(runtime.node)).toBe(true);
    expect(found()).toEqual([String(250 * MiB), 'max']);
    expect(left()).toBeUndefined();
  });

  test('a memory.high of the pod stays in the journal after a further update, until it can be restored', async () => {
    await updates.update(60 * MiB);
    expect(left()).toMatchObject({ steps: [], highs: [{ cgroup: POD, memoryHigh: 'max' }] });
    isStuck = false;
    await updates.update(70 * MiB);
    expect(found()).toEqual([String(270 * MiB), 'max']);
    expect(left()).toBeUndefined();
  });
});
