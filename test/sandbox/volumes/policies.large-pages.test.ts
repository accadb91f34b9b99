import { expect, test, vi } from 'vitest';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { KiB, MiB } from '../../../src/core/quantities/sizes.ts';
import { VolumePolicies } from '../../../src/sandbox/volumes/policies.ts';

vi.mock(import('../../../src/core/quantities/page-size.ts'), async () => {
  const numbers = await import('../../../src/core/quantities/numbers.ts');
  return { PAGE_SIZE: numbers.bytes(64 * 1024) };
});

test('with pages of 64 KiB, a size that differs by less than a page is not a change by another program', () => {
  const policies = new VolumePolicies();
  const mounted = (size: number) => [{ name: 'cache', size: bytes(size), device: '0:50' }];
  policies.observe('pod', mounted(100 * MiB), bytes(200 * MiB));
  policies.recordMounts('pod', mounted(100 * MiB + 4 * KiB));
  expect(policies.observe('pod', mounted(100 * MiB + 64 * KiB), bytes(200 * MiB))).toEqual([]);
  expect(policies.observe('pod', mounted(100 * MiB + 128 * KiB), bytes(200 * MiB))).toHaveLength(1);
});
