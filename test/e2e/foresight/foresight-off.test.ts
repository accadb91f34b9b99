import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { ALONE_MS, CASES, ForesightStage, both, limitsOf, useOf } from '../../support/e2e/foresight-stage.ts';

/** Memory limits that kubelet has admitted and refuses to lower because more is in use, without the shim's help. */

const stage = new ForesightStage();

describe('without foresight', () => {
  beforeAll(() => stage.start('--foresight=false'));
  afterAll(() => stage.stop());
  const podOf = stage.sharedPod();

  test.each(CASES)(
    'KEP-1287: without foresight kubelet does not lower the limit of a container with $what',
    async ({ fill }) => {
      const pod = podOf();
      await fill(await stage.tenantIn(pod), stage);
      const before = useOf(pod);
      await expect(stage.kubelet.resize(pod, { containers: { a: 64 } }, ALONE_MS)).rejects.toThrow(
        /below current usage/,
      );
      expect(useOf(pod)).toBeGreaterThan(before - 8 * MiB);
      expect([limitsOf(pod), pod.oomKills()]).toEqual([both(192), 0]);
      expect((await stage.statusOf(pod)).containers['a']?.pending).toBeUndefined();
    },
  );

  test('without foresight kubelet does not lower the limit of a container whose usage grows', async () => {
    const pod = podOf();
    const tenant = await stage.tenantIn(pod);
    const file = stage.bigFile(120);
    await tenant.run('read', file);
    await tenant.run('churn', file, 16 * MiB);
    await expect(stage.kubelet.resize(pod, { containers: { a: 64 } }, ALONE_MS)).rejects.toThrow(/below current usage/);
    await tenant.run('nothing');
    expect([limitsOf(pod), pod.oomKills()]).toEqual([both(192), 0]);
  });

  test('KEP-1287: without foresight kubelet does not lower the limits of ten pods', async () => {
    const ten = await Promise.all(Array.from({ length: 10 }, () => stage.makePod(96)));
    for (const pod of ten) await (await stage.tenantIn(pod)).run('read', stage.bigFile(60));
    const results = await Promise.allSettled(
      ten.map((pod) => stage.kubelet.resize(pod, { containers: { a: 48 } }, ALONE_MS, 250)),
    );
    expect(new Set(results.map(({ status }) => status))).toEqual(new Set(['rejected']));
    for (const pod of ten) expect([limitsOf(pod), pod.oomKills()]).toEqual([both(96), 0]);
  });

  test('without foresight kubelet does not lower the limit of a pod itself', async () => {
    const pod = await stage.makePod(0, 192);
    await (await stage.tenantIn(pod)).run('read', stage.bigFile(100));
    const lowered = stage.kubelet.resize(pod, { containers: { a: undefined }, level: 64 }, ALONE_MS);
    await expect(lowered).rejects.toThrow(/below current usage/);
    expect([limitsOf(pod), pod.oomKills()]).toEqual([[String(192 * MiB), 'max'], 0]);
  });
});
