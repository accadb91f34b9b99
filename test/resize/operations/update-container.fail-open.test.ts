import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { FakeRuntime, containerId, containerUpdate, podConfig } from '../../support/fake-runtime.ts';
import { updateContainer } from '../../../src/resize/operations/update-container.ts';

const MiB = 1024 * 1024;
const ANSWER = Buffer.from('the answer of the runtime');

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
});
afterEach(() => runtime.close());

/** Updates the memory limit of the container's cgroup, as the runtime does, and answers. */
const applies = (memory: number, id = containerId(0)) => {
  if (memory > 0 && id !== containerId(7)) runtime.writeFile(`/kubepods/pod1/${id}`, 'memory.max', String(memory));
  return Promise.resolve(ANSWER);
};
const update = (memory: number, forward = () => applies(memory), id = containerId(0)) =>
  updateContainer(runtime.context, containerUpdate(id, { memory_limit_in_bytes: BigInt(memory) }), forward);

describe('UpdateContainerResources is forwarded unchanged', () => {
  test('for a container that the runtime does not know', async () => {
    runtime.makePod(String(200 * MiB), [100 * MiB]);
    expect(await update(50 * MiB, undefined, containerId(7))).toBe(ANSWER);
    expect(runtime.failOpens).toEqual(['unknown_pod']);
  });

  test('when the runtime does not answer ContainerStatus', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    runtime.on('ContainerStatus');
    expect(await update(50 * MiB)).toBe(ANSWER);
    expect(runtime.failOpens).toEqual(['unknown_pod']);
  });

  test('for a pod without a description in the status of the runtime', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    runtime.describePod({ strange: true });
    expect(await update(50 * MiB)).toBe(ANSWER);
    expect(runtime.failOpens).toEqual(['unknown_pod']);
    expect(runtime.read('memory.max')).toBe(String(100 * MiB));
  });

  test('for a pod whose memory.max does not exist', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    rmSync(join(runtime.cgroupRoot, 'kubepods/pod1/memory.max'));
    expect(await update(50 * MiB)).toBe(ANSWER);
    expect(runtime.failOpens).toEqual(['unreadable_state']);
  });

  test('for a pod whose memory.max has unexpected content', async () => {
    runtime.makePod('a lot', [100 * MiB]);
    expect(await update(50 * MiB)).toBe(ANSWER);
    expect(runtime.failOpens).toEqual(['unreadable_state']);
  });

  test('for a pod whose cgroup parent contains ..', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    runtime.describePod({ config: { ...podConfig, linux: { cgroup_parent: '/kubepods/../../etc' } } });
    expect(await update(50 * MiB)).toBe(ANSWER);
    expect(runtime.failOpens).toEqual(['unreadable_state']);
  });

  test('and counted each time, but logged once for each container and reason', async () => {
    runtime.makePod('a lot', [100 * MiB]);
    await update(50 * MiB);
    await update(60 * MiB);
    expect(runtime.failOpens).toHaveLength(2);
    expect(runtime.warnings).toHaveLength(1);
    expect(runtime.warnings[0]).toMatchObject({ reason: 'unreadable_state', id: containerId(0) });
  });
});
