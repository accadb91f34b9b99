import { expect, test, vi } from 'vitest';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { KiB, MiB } from '../../../src/core/quantities/sizes.ts';
import { sameMemory } from '../../../src/sandbox/plan/amounts.ts';
import { isMemoryTight, podLimitsFor } from '../../../src/sandbox/plan/pod-limits.ts';
import { container, pod } from '../../support/resize/plan-cases.ts';

vi.mock(import('../../../src/core/quantities/page-size.ts'), async () => {
  const numbers = await import('../../../src/core/quantities/numbers.ts');
  return { PAGE_SIZE: numbers.bytes(64 * 1024) };
});

// The kernel rounds each memory.max down to a page of 64 KiB.

const kib = (count: number) => bytes(count * KiB);

test('a limit that the kernel has rounded to 64 KiB pages equals the limit that was written', () => {
  expect(sameMemory(kib(128), kib(190))).toBe(true);
  expect(sameMemory(kib(64), kib(190))).toBe(false);
});

test('a pod limit is tight if it exceeds the sum by at most one page of 64 KiB for each container', () => {
  // Two containers of 100 MiB and 60 KiB each, in a pod with their sum.
  const limited = (id: string) => ({ ...container(id, 100), memory: bytes(100 * MiB) });
  const state = { ...pod('max', 'max', [limited('a'), limited('b')]), memory: bytes(200 * MiB + 64 * KiB) };
  expect(isMemoryTight(state)).toBe(true);
  expect(podLimitsFor(state, [{ id: 'a', memory: bytes(50 * MiB) }])).toEqual({ memory: 150 * MiB });
});
