import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { FakeRuntime, containerId, containerUpdate, podConfig } from '../../support/fake-runtime.ts';
import { updateContainer } from '../../../src/sandbox/operations/update-container.ts';

const ANSWER = Buffer.from('the answer of the runtime');

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
});
afterEach(() => runtime.close());

describe('an invalid UpdateContainerResources', () => {
  const asked = (linux: Parameters<typeof containerUpdate>[1], more: object = {}) =>
    updateContainer(runtime.node, { ...containerUpdate(containerId(0), linux), ...more }, () => {
      if (linux.cpu_quota)
        runtime.writeFile(`/kubepods/pod1/${containerId(0)}`, 'cpu.max', `${linux.cpu_quota} 100000`);
      return Promise.resolve(ANSWER);
    });

  test('KEP-1287: an invalid update is rejected at once and does not supersede a waiting request', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    let release = (): void => undefined;
    const held = runtime.node.lock.run(
      podConfig.metadata.uid,
      () => new Promise<void>((resolve) => (release = resolve)),
    );
    const good = asked({ cpu_quota: 20_000n });
    await expect(asked({ cpu_quota: 5n })).rejects.toMatchObject({ code: 3, reason: 'INVALID_VALUE' });
    release();
    await held;
    expect(await good).toBe(ANSWER);
  });

  test('rejects an update with both linux and windows', async () => {
    runtime.makePod(String(100 * MiB), [100 * MiB]);
    await expect(asked({ cpu_quota: 20_000n }, { windows: {} })).rejects.toThrow(
      'container c0 of pod default/web: windows: "set": must not be set together with linux',
    );
    expect(await asked({}, { linux: null, windows: {} })).toBe(ANSWER);
  });

  test('rejects an update with an invalid container id without a call to the runtime', async () => {
    const request = containerUpdate('f'.repeat(254), { memory_limit_in_bytes: BigInt(50 * MiB) });
    const rejected = updateContainer(runtime.node, request, () => Promise.resolve(ANSWER));
    await expect(rejected).rejects.toMatchObject({ code: 3 });
    expect(runtime.calls).toEqual([]);
  });

  test('rejects an update if the sum of the limits is too large', async () => {
    runtime.makePod(String(100 * MiB), [50 * MiB, 50 * MiB]);
    await expect(asked({ memory_limit_in_bytes: 2n ** 53n - 4096n })).rejects.toThrow(
      /^pod default\/web: memory.max: /,
    );
    await expect(asked({ cpu_quota: 2n ** 44n - 1n })).rejects.toThrow(/^pod default\/web: cpu.max: /);
    expect(runtime.read('memory.max')).toBe(String(100 * MiB));
  });
});
