import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { CgroupTree } from '../../../src/cgroups/tree.ts';
import type { PodEntry } from '../../../src/kubelet/checkpoint.ts';
import { encode } from '../../../src/runtime/codec.ts';
import { mi } from '../../support/quantities/mebibytes.ts';
import { FakeRuntime, SANDBOX, containerId, containerUpdate } from '../../support/fake-runtime.ts';
import { raisePodForRestart } from '../../../src/sandbox/operations/raise-pod-limit.ts';

const FORMER = containerId(0);
const NEW = 'f'.repeat(64);

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
});
afterEach(() => runtime.close());

describe('kubernetes 138760: restart of a container with larger limits than fit into the pod limit', () => {
  const stored = (memory: number) => ({
    memory_limit_in_bytes: BigInt(memory),
    cpu_quota: 10_000n,
    cpu_period: 100_000n,
  });

  /** Ends the former container, and adds another one with its name, after others of that name. */
  function restart(
    former: number,
    podLimit: string,
    others: readonly number[] = [],
    between: readonly string[] = [],
    exitCode = 1,
  ): void {
    runtime.makePod(podLimit, [former, ...others]);
    runtime.on('ContainerStatus', () =>
      encode('ContainerStatusResponse', {
        status: {
          ...{ id: FORMER, metadata: { name: 'web' }, state: 2, exit_code: exitCode },
          resources: { linux: stored(former) },
        },
        info: { info: JSON.stringify({ sandboxID: SANDBOX, pid: 0 }) },
      }),
    );
    runtime.removeCgroup(`/kubepods/pod1/${FORMER}`);
    for (const containerId of [FORMER, ...between, NEW])
      runtime.node.registry.learnContainer({ containerId, sandboxId: SANDBOX, name: 'web' });
  }

  const made = (memory: number) =>
    raisePodForRestart(runtime.node, SANDBOX, NEW, 'web', containerUpdate(NEW, stored(memory)).linux);

  test('KEP-1287: a tight pod limit is raised by the difference when a container restarts with larger limits', async () => {
    restart(100 * MiB, String(300 * MiB), [200 * MiB]);
    await made(150 * MiB);
    expect(runtime.read('memory.max')).toBe(String(350 * MiB));
    expect(runtime.node.history.ofPod(SANDBOX)).toMatchObject([
      {
        requester: { kind: 'shim' },
        state: 'Completed',
        changes: [{ value: 'pod memory', from: '300Mi', to: '350Mi' }],
      },
    ]);
  });

  test('a failure to raise the pod limit is recorded in the history, and the container starts', async () => {
    restart(100 * MiB, String(300 * MiB), [200 * MiB]);
    const file = vi.spyOn(CgroupTree.prototype, 'write').mockRejectedValue(new Error('EROFS'));
    await made(150 * MiB);
    file.mockRestore();
    expect(runtime.node.history.ofPod(SANDBOX)).toMatchObject([
      { requester: { kind: 'shim' }, state: 'Infeasible', message: expect.stringContaining('EROFS') as string },
    ]);
  });

  test('a restarted container raises a loose pod limit only as far as the sum exceeds it', async () => {
    restart(100 * MiB, String(400 * MiB), [200 * MiB]);
    await made(150 * MiB);
    expect(runtime.read('memory.max')).toBe(String(400 * MiB));
    await made(250 * MiB);
    expect(runtime.read('memory.max')).toBe(String(450 * MiB));
  });

  test('a restarted container does not change a pod limit below the sum or an unlimited pod', async () => {
    restart(100 * MiB, String(200 * MiB), [200 * MiB]);
    await made(150 * MiB);
    expect(runtime.read('memory.max')).toBe(String(200 * MiB));
    restart(100 * MiB, 'max', [200 * MiB]);
    await made(150 * MiB);
    expect(runtime.read('memory.max')).toBe('max');
  });

  test('raises the pod limit for a restarted container that had ended with 0 if another one was raised into its share', async () => {
    restart(100 * MiB, String(200 * MiB), [180 * MiB], [], 0);
    await made(100 * MiB);
    expect(runtime.read('memory.max')).toBe(String(280 * MiB));
  });

  test('does not change the pod limit for a restarted container that had ended with 0 and fits', async () => {
    restart(100 * MiB, String(300 * MiB), [180 * MiB], [], 0);
    await made(100 * MiB);
    expect(runtime.read('memory.max')).toBe(String(300 * MiB));
  });

  test('does not remove the pod limit for a restarted container without limits that had ended with 0', async () => {
    restart(-1, String(200 * MiB), [180 * MiB], [], 0);
    await made(-1);
    expect(runtime.read('memory.max')).toBe(String(200 * MiB));
  });

  test.each([
    ['stays where kubelet has written it for the restart', 200],
    ['is raised where kubelet has not', 96],
  ])('A9: with an ended init container, the pod limit for a restarted container %s', async (_, podLimit) => {
    restart(96 * MiB, String(podLimit * MiB));
    const setup = { id: 'e'.repeat(64), metadata: { name: 'setup' }, state: 2, created_at: 1n };
    const web = { metadata: { name: 'web' } };
    runtime.describeContainer(setup.id, { ...setup, exit_code: 0, resources: { linux: stored(64 * MiB) } });
    const former = { ...web, id: FORMER, state: 2, created_at: 2n };
    const containers = [setup, former, { ...web, id: NEW, state: 0, created_at: 3n }];
    runtime.on('ListContainers', () => encode('ListContainersResponse', { containers }));
    const entry = (limit: number): PodEntry => {
      const limits = new Map([
        ['setup', { memory: mi(64) }],
        ['web', { memory: mi(limit) }],
      ]);
      return { containers: limits, pod: undefined, isComplete: true };
    };
    runtime.allocated.set('uid-1', entry(200));
    runtime.actuated.set('uid-1', entry(96));
    await made(200 * MiB);
    expect(runtime.read('memory.max')).toBe(String(200 * MiB));
  });

  test('the limits are not compared with those of a container that was created and never started', async () => {
    const forgotten = 'e'.repeat(64);
    restart(100 * MiB, String(300 * MiB), [200 * MiB], [forgotten]);
    runtime.describeContainer(forgotten, {
      metadata: { name: 'web' },
      state: 0,
      resources: { linux: stored(150 * MiB) },
    });
    await made(150 * MiB);
    expect(runtime.read('memory.max')).toBe(String(350 * MiB));
  });

  test('the pod limit is not lowered when the container restarts with smaller limits', async () => {
    restart(100 * MiB, String(300 * MiB), [200 * MiB]);
    await made(50 * MiB);
    expect(runtime.read('memory.max')).toBe(String(300 * MiB));
    expect(runtime.node.history.ofPod(SANDBOX)).toEqual([]);
  });
});
