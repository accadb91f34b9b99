import { afterEach, beforeEach, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { RecentResizes } from '../../../src/sandbox/history/recent-resizes.ts';
import { updateContainer } from '../../../src/sandbox/operations/update-container.ts';
import { recordTransactions } from '../../../src/sandbox/transaction/listeners.ts';
import { containerId, containerUpdate, FakeRuntime, SANDBOX } from '../../support/fake-runtime.ts';

let runtime: FakeRuntime;
let recent: RecentResizes;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
  recent = new RecentResizes(3);
  const { transactions, registry, tree } = runtime.node;
  transactions.listen(recordTransactions(recent, registry, tree));
  runtime.node.registry.learnContainer({ containerId: containerId(0), sandboxId: SANDBOX, name: 'app' });
});
afterEach(() => runtime.close());

const update = (mebibytes: number, fails?: Error) =>
  updateContainer(
    runtime.node,
    containerUpdate(containerId(0), { memory_limit_in_bytes: BigInt(mebibytes * MiB) }),
    () => {
      if (fails !== undefined) return Promise.reject(fails);
      runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'memory.max', String(mebibytes * MiB));
      return Promise.resolve(Buffer.alloc(0));
    },
  );

test('a resize is recorded with its steps, the update of the caller and the memory in use', async () => {
  await update(150);
  const [resize] = recent.all;
  expect(resize).toMatchObject({ namespace: 'default', name: 'web', outcome: 'done', usedBefore: 1_000_000 });
  expect(resize?.names.get(containerId(0))).toBe('c0');
  expect(resize?.before.memory).toBe(300 * MiB);
  expect(resize?.steps.map(({ step, used }) => ({ step, used }))).toEqual([
    { step: { kind: 'pod-memory', from: 300 * MiB, to: 350 * MiB }, used: 1_000_000 },
    { step: { kind: 'container', id: containerId(0), memory: { from: 100 * MiB, to: 150 * MiB } }, used: 1_000_000 },
  ]);
  expect(resize?.steps.every(({ doneAt }) => doneAt <= resize.ms)).toBe(true);
});

test('a rolled back resize is recorded with its reason, one without changes is not, and the oldest are dropped', async () => {
  await expect(update(180, new Error('refused'))).rejects.toThrow('refused');
  expect(recent.all).toMatchObject([
    { outcome: 'undone', message: 'refused', steps: [{ step: { kind: 'pod-memory' } }] },
  ]);
  await update(100);
  expect(recent.all).toHaveLength(1);
  for (const size of [110, 120, 130, 140]) await update(size);
  const sizes = recent.all.map(({ steps }) =>
    steps.map(({ step }) => (step.kind === 'container' ? step.memory?.to : 0)).at(-1),
  );
  expect(sizes).toEqual([140 * MiB, 130 * MiB, 120 * MiB]);
});
