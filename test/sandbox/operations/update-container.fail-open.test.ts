import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { status } from '@grpc/grpc-js';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { FakeRuntime, RuntimeFailure, SANDBOX, containerId, podConfig } from '../../support/fake-runtime.ts';
import { ANSWER, ContainerUpdates } from '../../support/resize/container-updates.ts';

let runtime: FakeRuntime;
let updates: ContainerUpdates;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  updates = new ContainerUpdates(runtime);
});
afterEach(() => runtime.close());

describe('fail-open of UpdateContainerResources', () => {
  test('forwards an update of a container that the runtime does not know', async () => {
    runtime.makePod(String(200 * MiB), [100 * MiB]);
    expect(await updates.update(50 * MiB, undefined, containerId(7))).toBe(ANSWER);
    expect(runtime.failOpens).toEqual(['unknown_pod']);
  });

  test("forwards an update if the runtime's status has no description of the pod", async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    runtime.describePod({ strange: true });
    expect(await updates.update(50 * MiB)).toBe(ANSWER);
    expect(runtime.failOpens).toEqual(['unknown_pod']);
    expect(runtime.read('memory.max')).toBe(String(100 * MiB));
  });

  test('forwards an update if the memory.max of the pod does not exist', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    rmSync(join(runtime.cgroupRoot, 'kubepods/pod1/memory.max'));
    expect(await updates.update(50 * MiB)).toBe(ANSWER);
    expect(runtime.failOpens).toEqual(['unreadable_state']);
  });

  test('forwards an update if the memory.max of the pod has unexpected content', async () => {
    runtime.makePod('a lot', [100 * MiB]);
    expect(await updates.update(50 * MiB)).toBe(ANSWER);
    expect(runtime.failOpens).toEqual(['unreadable_state']);
  });

  test('forwards an update if the cgroup parent of the pod contains ..', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    runtime.describePod({ config: { ...podConfig, linux: { cgroup_parent: '/kubepods/../../etc' } } });
    expect(await updates.update(50 * MiB)).toBe(ANSWER);
    expect(runtime.failOpens).toEqual(['unreadable_state']);
  });

  test('forwards an update if the runtime fails to describe the container', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    runtime.on('ContainerStatus', () => {
      throw new RuntimeFailure(status.INTERNAL, 'database is damaged');
    });
    expect(await updates.update(50 * MiB)).toBe(ANSWER);
    expect(runtime.failOpens).toEqual(['unknown_pod']);
  });

  test('counts each forwarded request, and logs it once for each container and reason', async () => {
    runtime.makePod('a lot', [100 * MiB]);
    await updates.update(50 * MiB);
    await updates.update(60 * MiB);
    expect(runtime.failOpens).toHaveLength(2);
    expect(runtime.warnings).toHaveLength(1);
    expect(runtime.warnings[0]).toMatchObject({ reason: 'unreadable_state', id: containerId(0) });
  });
});

/** If forwarded a moment later, it would be applied without an order: containers could exceed their pod. */
describe.each([
  ['does not serve calls yet', new RuntimeFailure(status.UNKNOWN, 'server is not initialized yet')],
  ['has gone', new RuntimeFailure(status.UNAVAILABLE, 'error reading from server: EOF')],
  ['does not answer in time', new RuntimeFailure(status.DEADLINE_EXCEEDED, 'context deadline exceeded')],
])('UpdateContainerResources is not forwarded to a runtime that %s', (_what, failure) => {
  test.each([
    ['a known', true],
    ['an unknown', false],
  ])(
    "KEP-1287: an update of %s container is not forwarded to an unavailable runtime, and fails with the runtime's error",
    async (_known, isKnown) => {
      runtime.makePod(String(100 * MiB), [100 * MiB]);
      if (isKnown) {
        await runtime.node.registry.pod(SANDBOX);
        runtime.node.registry.learnContainer({ containerId: containerId(0), sandboxId: SANDBOX, name: 'c0' });
      }
      runtime.on('ContainerStatus', () => {
        throw failure;
      });
      await expect(updates.update(150 * MiB)).rejects.toMatchObject({ code: failure.code });
      expect(runtime.limitOf(0)).toBe(100 * MiB);
      expect(runtime.failOpens).toEqual([]);
    },
  );
});
