import { afterEach, beforeEach, expect, it } from 'vitest';
import { FakeRuntime, SANDBOX, containerId, containerUpdate } from '../../support/fake-runtime.ts';
import { RecentResizes } from '../../../src/resize/history/recent-resizes.ts';
import { updateContainer } from '../../../src/resize/operations/update-container.ts';

const MI = 1024 * 1024;
let runtime: FakeRuntime;
let recent: RecentResizes;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(String(300 * MI), [100 * MI, 200 * MI]);
  recent = new RecentResizes(3);
  runtime.context.registry.learnContainer({ containerId: containerId(0), sandboxId: SANDBOX, name: 'app' });
});
afterEach(() => runtime.close());

const update = (mebibytes: number, fails?: Error) =>
  updateContainer(
    { ...runtime.context, recent },
    containerUpdate(containerId(0), { memory_limit_in_bytes: BigInt(mebibytes * MI) }),
    () => {
      if (fails !== undefined) return Promise.reject(fails);
      runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'memory.max', String(mebibytes * MI));
      return Promise.resolve(Buffer.alloc(0));
    },
  );

it("a resize is kept with its steps, the caller's own among them, and what was in use", async () => {
  await update(150);
  const [resize] = recent.all;
  expect(resize).toMatchObject({ namespace: 'default', name: 'web', outcome: 'done', usedBefore: 1_000_000 });
  expect(resize?.names.get(containerId(0))).toBe('c0');
  expect(resize?.before.memory).toBe(300 * MI);
  expect(resize?.steps.map(({ step, used }) => ({ step, used }))).toEqual([
    { step: { kind: 'pod-memory', from: 300 * MI, to: 350 * MI }, used: 1_000_000 },
    { step: { kind: 'container', id: containerId(0), memory: { from: 100 * MI, to: 150 * MI } }, used: 1_000_000 },
  ]);
  expect(resize?.steps.every(({ doneAt }) => doneAt <= resize.ms)).toBe(true);
});

it('one that was taken back says why; one that changes nothing is not kept; the oldest go', async () => {
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
  expect(sizes).toEqual([140 * MI, 130 * MI, 120 * MI]);
});
