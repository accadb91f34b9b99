import { describe, expect, test } from 'vitest';
import { type Bytes, type Limit, bytes } from '../../src/core/quantities/numbers.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { FakeMemory, writeRefused } from '../support/fake-memory.ts';
import { reclaimTo } from '../support/lower-usage.ts';

describe('memory.high', () => {
  test('reports memory.high before a change, and does not change it if the caller cannot record it', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    memory.high = bytes(300 * MiB);
    const reported: unknown[] = [];
    await reclaimTo(memory, 64 * MiB, {
      onHigh: (previous) => Promise.resolve(void reported.push(previous, memory.high)),
    });
    expect(reported).toEqual([300 * MiB, 300 * MiB]);
    const written = memory.highs.length;
    memory.cache = 200 * MiB;
    await expect(reclaimTo(memory, 64 * MiB, { onHigh: () => Promise.reject(new Error('disk full')) })).rejects.toThrow(
      'disk full',
    );
    expect(memory.highs.length).toBe(written);
    expect(memory.asked.length).toBeGreaterThan(0);
  });

  test('restores memory.high when the limit cannot be set, and fails with the error of the limit', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    await expect(reclaimTo(memory, 64 * MiB, { lower: () => Promise.reject(new Error('runc')) })).rejects.toThrow(
      'runc',
    );
    expect(memory.high).toBe('max');
  });

  test('does not restore memory.high when another process has written it while the limit was set', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    await reclaimTo(memory, 64 * MiB, { lower: () => Promise.resolve(void (memory.high = bytes(50 * MiB))) });
    expect(memory.high).toBe(50 * MiB);
  });

  test('restores memory.high to the value that another process wrote during the reclaim, and reports that value', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    const reported: Limit<Bytes>[] = [];
    memory.meanwhile = () => {
      if (memory.asked.length === 2) memory.high = bytes(500 * MiB);
    };
    await reclaimTo(memory, 64 * MiB, { onHigh: (previous) => Promise.resolve(void reported.push(previous)) });
    expect(reported).toEqual(['max', 500 * MiB]);
    expect(memory.high).toBe(500 * MiB);
  });

  test('fails with the error of the write when memory.high cannot be lowered', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    memory.beforeHigh = () => Promise.reject(writeRefused());
    await expect(reclaimTo(memory, 64 * MiB)).rejects.toMatchObject({ reason: 'CGROUP_WRITE_FAILED' });
    expect(memory.high).toBe('max');
  });

  test('fails with UNDO_FAILED, the value and both errors when memory.high cannot be restored', async () => {
    const memory = new FakeMemory(40 * MiB, 200 * MiB);
    memory.beforeHigh = (value) => (value === 'max' ? Promise.reject(writeRefused()) : Promise.resolve());
    await expect(reclaimTo(memory, 64 * MiB, { lower: () => Promise.reject(new Error('runc')) })).rejects.toMatchObject(
      {
        reason: 'UNDO_FAILED',
        message: expect.stringMatching(/runc.*restored to max.*refused/) as unknown,
        context: { asked: 'max' },
      },
    );
  });
});
