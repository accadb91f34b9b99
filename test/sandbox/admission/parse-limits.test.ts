import { describe, expect, test } from 'vitest';
import type { ShimError } from '../../../src/core/errors.ts';
import { microseconds } from '../../../src/core/quantities/numbers.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import type { LinuxContainerResources, Messages, Partially } from '../../../src/runtime/messages.ts';
import { fieldsSet, parseLimits, touchesLimits } from '../../../src/sandbox/admission/parse-limits.ts';
import { criMi } from '../../support/quantities/mebibytes.ts';

const CURRENT = { quota: microseconds(20_000), period: microseconds(100_000) };

/** Resources as the shim decodes them from a request. */
function received(linux: Partially<LinuxContainerResources>): LinuxContainerResources {
  const bytes = encode('UpdateContainerResourcesRequest', { linux });
  return decode('UpdateContainerResourcesRequest', bytes).linux!;
}

const parsed = (linux: Partially<LinuxContainerResources>) => parseLimits(received(linux), CURRENT);

describe('parseLimits', () => {
  test.each([
    ['a request without limits', { oom_score_adj: 100n }, {}],
    ['a memory limit', { memory_limit_in_bytes: 67_108_864n }, { memory: 67_108_864 }],
    ['a memory limit of -1', { memory_limit_in_bytes: -1n }, { memory: 'max' }],
    [
      'a memory limit above any machine as no limit',
      { memory_limit_in_bytes: 9_223_372_036_854_771_712n },
      { memory: 'max' },
    ],
    ['a quota without a period', { cpu_quota: 5000n }, { cpu: { quota: 5000, period: 100_000 } }],
    ['a period without a quota', { cpu_period: 50_000n }, { cpu: { quota: 20_000, period: 50_000 } }],
    ['a quota of -1', { cpu_quota: -1n }, { cpu: { quota: 'max', period: 100_000 } }],
    [
      'memory.max in unified before memory_limit_in_bytes',
      { memory_limit_in_bytes: criMi(1), unified: { 'memory.max': '2097152' } },
      { memory: 2_097_152 },
    ],
    ['memory.max in unified with blanks and a newline', { unified: { 'memory.max': ' max\n' } }, { memory: 'max' }],
    ['the value that the kernel reads as no limit', { unified: { 'memory.max': '15e' } }, { memory: 'max' }],
    ['a limit of one page', { memory_limit_in_bytes: 4096n }, { memory: 4096 }],
    ['memory.max in unified with a suffix', { unified: { 'memory.max': '64M' } }, { memory: 67_108_864 }],
    ['cpu.max in unified', { unified: { 'cpu.max': 'max 100000' } }, { cpu: { quota: 'max', period: 100_000 } }],
    [
      'cpu.max in unified with extra blanks',
      { unified: { 'cpu.max': '  5000   20000\n' } },
      { cpu: { quota: 5000, period: 20_000 } },
    ],
    [
      'cpu.max in unified without a period',
      { unified: { 'cpu.max': '30000' } },
      { cpu: { quota: 30_000, period: 100_000 } },
    ],
  ] as const)('parseLimits reads %s', (_name, linux, expected) => {
    expect(parsed(linux)).toStrictEqual(expected);
  });

  test.each([
    ['memory_limit_in_bytes', { memory_limit_in_bytes: -2n }, '-2: the only allowed negative number is -1'],
    ['cpu_quota', { cpu_quota: -5n }, '-5'],
    ['cpu.max', { cpu_quota: 999n }, '999'],
    ['cpu.max', { cpu_quota: 5000n, cpu_period: 999n }, '999'],
    ['unified["memory.max"]', { unified: { 'memory.max': 'lots' } }, '"lots": not a number and not "max"'],
    ['unified["memory.max"]', { unified: { 'memory.max': '-64M' } }, '"-64M": not a number'],
    ['unified["memory.max"]', { unified: { 'memory.max': '64MB' } }, '"64MB": not a number'],
    ['memory_limit_in_bytes', { memory_limit_in_bytes: 4095n }, '"4095": less than a page'],
    ['unified["memory.max"]', { unified: { 'memory.max': '0' } }, '"0": less than a page'],
    ['unified["memory.max"]', { unified: { 'memory.max': '3k' } }, '"3k": less than a page'],
    ['unified["memory.max"]', { unified: { 'memory.max': '16e' } }, '"16e": more than the kernel can read'],
    ['unified["memory.max"]', { unified: { 'memory.max': '8p' } }, '"8p": more than any node has'],
    ['unified["memory.max"]', { unified: { 'memory.max': '0200000000' } }, '"0200000000": not a number'],
    ['unified["cpu.max"]', { unified: { 'cpu.max': '' } }, '"": a quota is "max" or a number'],
    [
      'unified["cpu.max"]',
      { unified: { 'cpu.max': '1000 max' } },
      '"1000 max": a quota is "max" or a number, a period',
    ],
    ['unified["cpu.max"]', { unified: { 'cpu.max': '200k' } }, '"200k": a quota is'],
    ['cpu.max', { unified: { 'cpu.max': '999' } }, '999: the quota must be at least 1000'],
    ['cpu.max', { unified: { 'cpu.max': '5000 1000001' } }, '1000001: the period must be'],
    ['cpu.max', { cpu_quota: 17_592_186_044_416n }, '17592186044416: the quota must be at most'],
    ['unified["cpu.max"]', { unified: { 'cpu.max': '1000 1000 1000' } }, '1000 1000": cpu.max is "quota period"'],
  ] as const)('parseLimits rejects an invalid %s and reports the value', (field, linux, value) => {
    const rejection = (() => {
      try {
        return parsed(linux);
      } catch (error) {
        return error;
      }
    })();
    expect(rejection).toMatchObject({ reason: 'INVALID_VALUE', code: 3 });
    expect((rejection as Error).message).toContain(field);
    expect((rejection as Error).message).toContain(value);
  });

  test('an error repeats at most 64 characters of an invalid value', () => {
    const reported = (value: string): unknown => {
      try {
        return parsed({ unified: { 'memory.max': value } });
      } catch (error) {
        return (error as ShimError).context;
      }
    };
    expect(reported('x'.repeat(64))).toEqual({ asked: 'x'.repeat(64) });
    expect(reported('x'.repeat(65))).toEqual({ asked: `${'x'.repeat(64)}...` });
  });

  test('touchesLimits is false for cpuset and shares alone', () => {
    expect(touchesLimits(received({ cpuset_cpus: '0-1', cpu_shares: 512n }))).toBe(false);
    expect(touchesLimits(received({ unified: { 'memory.high': '1' } }))).toBe(false);
  });

  test.each([
    { memory_limit_in_bytes: -1n },
    { cpu_quota: 1000n },
    { cpu_period: 1000n },
    { unified: { 'memory.max': 'max' } },
    { unified: { 'cpu.max': 'max' } },
  ])('touchesLimits is true for %o', (linux) => {
    expect(touchesLimits(received(linux))).toBe(true);
  });
});

describe('fieldsSet', () => {
  const set = (request: Partially<Messages['UpdateContainerResourcesRequest']>): string[] => {
    const received = decode('UpdateContainerResourcesRequest', encode('UpdateContainerResourcesRequest', request));
    return [...fieldsSet(received)].sort();
  };

  test('fieldsSet returns the fields that are not zero and not empty', () => {
    const linux = { memory_limit_in_bytes: -1n, cpu_shares: 2n, cpu_quota: 0n, cpuset_cpus: '0-1', cpuset_mems: '' };
    expect(set({ linux })).toEqual(['cpu_shares', 'cpuset_cpus', 'memory_limit_in_bytes']);
  });

  test('fieldsSet returns each key of a map separately, so that a request with another key does not replace it', () => {
    const request = {
      linux: {
        unified: { 'memory.high': 'max', 'io.max': '' },
        hugepage_limits: [{ page_size: '2MB' }, { page_size: '1GB', limit: 0n }],
      },
      annotations: { a: '1', b: '' },
    };
    expect(set(request)).toEqual([
      'annotations a',
      'annotations b',
      'hugepage_limits 1GB',
      'hugepage_limits 2MB',
      'unified io.max',
      'unified memory.high',
    ]);
  });

  test('fieldsSet returns nothing for an empty request, and `windows` for a Windows request', () => {
    expect(set({})).toEqual([]);
    expect(set({ linux: {} })).toEqual([]);
    expect(set({ windows: {} })).toEqual(['windows']);
  });
});
