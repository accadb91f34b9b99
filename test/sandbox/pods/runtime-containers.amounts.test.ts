import { describe, expect, test } from 'vitest';
import { bytes, microseconds } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { decode, encode } from '../../../src/runtime/codec.ts';
import { amountsOf, isEmpty, storedAmounts } from '../../../src/sandbox/pods/runtime-containers.ts';

const stored = (linux: object) => decode('LinuxContainerResources', encode('LinuxContainerResources', linux));
const cpu = (quota: number | 'max', period = 100_000) => ({
  quota: quota === 'max' ? quota : microseconds(quota),
  period: microseconds(period),
});

test('limits are empty only without memory and CPU', () => {
  expect(isEmpty({})).toBe(true);
  expect(isEmpty({ memory: bytes(MiB) })).toBe(false);
  expect(isEmpty({ milliCpu: 100 })).toBe(false);
  expect(isEmpty({ memory: bytes(MiB), milliCpu: 100 })).toBe(false);
});

describe('limits as Kubernetes declares them', () => {
  test('returns only the resources that are limited', () => {
    expect(amountsOf({ memory: bytes(64 * MiB), cpu: cpu(50_000) })).toEqual({ memory: 64 * MiB, milliCpu: 500 });
    expect(amountsOf({ memory: 'max', cpu: cpu(50_000) })).toEqual({ milliCpu: 500 });
    expect(amountsOf({ memory: bytes(64 * MiB), cpu: cpu('max') })).toEqual({ memory: 64 * MiB });
    expect(amountsOf({ memory: 'max', cpu: cpu('max') })).toEqual({});
  });

  test('returns CPU in millicores according to the period, rounded up', () => {
    expect(amountsOf({ memory: 'max', cpu: cpu(25_000, 50_000) })).toEqual({ milliCpu: 500 });
    expect(amountsOf({ memory: 'max', cpu: cpu(12_345) })).toEqual({ milliCpu: 124 });
    expect(amountsOf({ memory: 'max', cpu: cpu(12_300) })).toEqual({ milliCpu: 123 });
  });
});

describe('limits that the runtime stores', () => {
  test('returns the limits of a container that the runtime stores', () => {
    const linux = { memory_limit_in_bytes: BigInt(64 * MiB), cpu_quota: 20_000n, cpu_period: 100_000n };
    expect(storedAmounts(stored(linux))).toEqual({ memory: 64 * MiB, milliCpu: 200 });
  });

  test('returns no limits if the runtime stores none, or invalid ones', () => {
    expect(storedAmounts(undefined)).toBeUndefined();
    expect(storedAmounts(stored({ memory_limit_in_bytes: 1n, cpu_quota: 1n, cpu_period: 1n }))).toBeUndefined();
  });
});
