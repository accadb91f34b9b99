import { expect, test, vi } from 'vitest';
import { bytes } from '../../src/core/quantities/numbers.ts';
import { KiB, MiB } from '../../src/core/quantities/sizes.ts';
import { isSameSize, parseVolumeAnnotation, policyAtFirstSight, targetSize } from '../../src/tmpfs/sizes.ts';

vi.mock(import('../../src/core/quantities/page-size.ts'), async () => {
  const numbers = await import('../../src/core/quantities/numbers.ts');
  return { PAGE_SIZE: numbers.bytes(64 * 1024) };
});

// A kernel with pages of 64 KiB, as some arm64 kernels.

const key = 'volume.cri-resize-shim.io/cache';
const kib = (count: number) => bytes(count * KiB);

test('a size that the kernel has rounded up to a page counts as the size that was set', () => {
  expect(isSameSize(kib(100), kib(128))).toBe(true);
  expect(isSameSize(kib(100), kib(64))).toBe(false);
  expect(isSameSize(kib(129), kib(128))).toBe(false);
});

test('a volume with the size of the pod limit follows it, although the kernel has rounded the size of the volume', () => {
  expect(policyAtFirstSight(bytes(100 * MiB + 64 * KiB), bytes(100 * MiB))).toEqual({ kind: 'follow' });
});

test('the size of a share is rounded down to whole pages', () => {
  expect(targetSize({ kind: 'share', hundredths: 5000 }, bytes(MiB + 64 * KiB), new Map())).toBe(512 * KiB);
});

test('a volume annotation below the size of one page is rejected', () => {
  expect(() => parseVolumeAnnotation(key, '60Ki')).toThrow('a volume has at least a page, 65536 bytes');
  expect(parseVolumeAnnotation(key, '64Ki').policy).toEqual({ kind: 'absolute', size: 64 * KiB });
});
