import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';
import { FakeRuntime, SANDBOX, containerId, containerUpdate, podConfig } from '../../support/fake-runtime.ts';
import { criRequester } from '../../../src/sandbox/history/history-entry.ts';
import { updateContainer } from '../../../src/sandbox/operations/update-container.ts';
import type { DesiredPod } from '../../../src/sandbox/plan/resize-request.ts';
import { resizePod } from '../../../src/sandbox/operations/resize-pod.ts';

const requester = criRequester({ pid: 4711, name: 'crictl' });

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.applyUpdates();
  runtime.makePod(String(300 * MiB), [100 * MiB, 200 * MiB]);
  [0, 1].forEach((index) =>
    runtime.node.registry.learnContainer({ containerId: containerId(index), sandboxId: SANDBOX, name: `c${index}` }),
  );
});
afterEach(() => runtime.close());

const update = (memory: number, fails?: Error) =>
  updateContainer(
    runtime.node,
    containerUpdate(containerId(0), { memory_limit_in_bytes: BigInt(memory * MiB) }),
    () => {
      if (fails !== undefined) return Promise.reject(fails);
      runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'memory.max', String(memory * MiB));
      return Promise.resolve(Buffer.alloc(0));
    },
    { requester },
  );

const newest = () => runtime.node.history.ofPod(SANDBOX).at(0);

describe('history of updates by a CRI client', () => {
  test('records an update with the changes of the container and of the pod limit that follows it', async () => {
    await update(150);
    expect(newest()).toMatchObject({ requester, state: 'Completed', reason: undefined });
    expect(newest()?.changes).toEqual([
      { value: 'pod memory', from: '300Mi', to: '350Mi' },
      { value: 'container c0 memory', from: '100Mi', to: '150Mi' },
    ]);
  });

  test('records an update that is rejected for memory in use, and the next successful one as the newest', async () => {
    runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'memory.current', String(90 * MiB));
    runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'memory.stat', `anon ${90 * MiB}\nshmem 0\nunevictable 0\n`);
    await expect(update(50)).rejects.toMatchObject({ reason: 'MEMORY_NOT_RECLAIMABLE' });
    expect(newest()).toMatchObject({ state: 'Infeasible', reason: 'MEMORY_NOT_RECLAIMABLE', isRolledBack: false });
    expect(newest()?.changes).toEqual([{ value: 'container c0 memory', from: '100Mi', to: '50Mi' }]);
    await update(150);
    expect(newest()).toMatchObject({ state: 'Completed', reason: undefined });
  });

  test('records an invalid update', async () => {
    await expect(update(-7)).rejects.toMatchObject({ reason: 'INVALID_VALUE' });
    expect(newest()).toMatchObject({ requester, state: 'Infeasible', reason: 'INVALID_VALUE', changes: [] });
  });

  test('records an update that fails in the runtime, with the rollback of the pod limit', async () => {
    await expect(update(150, new Error('no'))).rejects.toThrow('no');
    expect(newest()).toMatchObject({ state: 'Infeasible', isRolledBack: true });
    expect(newest()?.changes).toContainEqual({ value: 'container c0 memory', from: '100Mi', to: '150Mi' });
  });

  test('records an update that a newer one supersedes while it waits', async () => {
    const release = Promise.withResolvers<undefined>();
    const held = runtime.node.lock.run(podConfig.metadata.uid, () => release.promise);
    const both = [update(150), update(160)];
    await expect.poll(() => runtime.node.lock.waiting(podConfig.metadata.uid), LONG_WAIT).toBe(1);
    await expect
      .poll(() => runtime.node.history.ofPod(SANDBOX), LONG_WAIT)
      .toMatchObject([
        { state: 'Canceled', reason: 'SUPERSEDED', changes: [{ value: 'container c0 memory', from: '', to: '150Mi' }] },
      ]);
    release.resolve(undefined);
    await Promise.all([held, ...both]);
    expect(runtime.node.history.ofPod(SANDBOX).map(({ state }) => state)).toEqual(['Completed', 'Canceled']);
    expect(newest()?.changes).toContainEqual({ value: 'container c0 memory', from: '100Mi', to: '160Mi' });
  });

  test('does not record an update that changes nothing', async () => {
    await update(100);
    expect(newest()).toBeUndefined();
  });
});

describe('changes that a resize of a pod reports', () => {
  /** Runs a resize, and returns the changes that it reports last. */
  async function changesOf(asked: Partial<DesiredPod>, fails = false): Promise<unknown> {
    let seen: unknown;
    const desired = { pod: {}, containers: new Map(), volumes: new Map(), ...asked };
    const onChanges = (changes: unknown): void => void (seen = changes);
    const running = resizePod(runtime.node, SANDBOX, desired, { dryRun: false, deadline: Infinity, onChanges });
    if (fails) await expect(running).rejects.toThrow();
    else await running;
    return seen;
  }
  const mebibytes = (count: number) => bytes(count * MiB);
  const requests = (count: number) => ({ containers: { c0: mebibytes(count) }, pod: mebibytes(2 * count) });

  test('ResizePod reports changes of limits', async () => {
    const containers = new Map([['c0', { memory: mebibytes(150) }]]);
    const changes = await changesOf({ containers, memoryRequests: { containers: {} } });
    expect(changes).toContainEqual({ value: 'container c0 memory', from: '100Mi', to: '150Mi' });
  });

  test('ResizePod reports changes of memory requests, compared with those of an earlier resize', async () => {
    const containers = new Map([['c0', {}]]);
    expect(await changesOf({ containers, memoryRequests: requests(64) })).toEqual([
      { value: 'pod memory request', from: '', to: '128Mi' },
      { value: 'container c0 memory request', from: '', to: '64Mi' },
    ]);
    const earlierMemoryRequests = { containers: { c0: mebibytes(64) }, pod: mebibytes(160) };
    expect(await changesOf({ containers, memoryRequests: requests(80), earlierMemoryRequests })).toEqual([
      { value: 'container c0 memory request', from: '64Mi', to: '80Mi' },
    ]);
  });

  test('ResizePod reports changes of memory requests together with those of limits', async () => {
    const containers = new Map([['c0', { memory: mebibytes(150) }]]);
    expect(await changesOf({ containers, memoryRequests: { containers: { c0: mebibytes(64) } } })).toEqual([
      { value: 'pod memory', from: '300Mi', to: '350Mi' },
      { value: 'container c0 memory', from: '100Mi', to: '150Mi' },
      { value: 'container c0 memory request', from: '', to: '64Mi' },
    ]);
  });

  test('a rejected ResizePod reports the changes of memory requests too', async () => {
    const containers = new Map([['c0', { memory: mebibytes(0.25) }]]);
    expect(await changesOf({ containers, memoryRequests: { containers: { c0: mebibytes(0.125) } } }, true)).toEqual([
      { value: 'container c0 memory', from: '100Mi', to: '256Ki' },
      { value: 'container c0 memory request', from: '', to: '128Ki' },
    ]);
  });
});
