import { describe, expect, test } from 'vitest';
import { decode, encode } from '../../../src/runtime/codec.ts';
import type { LinuxContainerResources, Partially } from '../../../src/runtime/messages.ts';
import { validatePodRequest, validateResources } from '../../../src/sandbox/admission/validate.ts';

/** Resources as the shim decodes them from a request. */
function received(linux: Partially<LinuxContainerResources>): LinuxContainerResources {
  const bytes = encode('UpdateContainerResourcesRequest', { linux });
  return decode('UpdateContainerResourcesRequest', bytes).linux!;
}

const invalid = expect.objectContaining({ code: 3, reason: 'INVALID_VALUE' }) as Error;
const LEAST = -(2n ** 63n);
const MOST = 2n ** 63n - 1n;

describe('valid resources', () => {
  test.each<Partially<LinuxContainerResources>>([
    {},
    { memory_limit_in_bytes: -1n, cpu_quota: -1n, memory_swap_limit_in_bytes: -1n },
    { memory_limit_in_bytes: MOST },
    { memory_limit_in_bytes: 4096n, memory_swap_limit_in_bytes: 4096n },
    { memory_limit_in_bytes: -1n, memory_swap_limit_in_bytes: 4096n },
    { memory_swap_limit_in_bytes: 1n },
    { cpu_quota: 2n ** 44n - 1n, cpu_period: 1_000_000n },
    { cpu_shares: 1n },
    { cpu_shares: 300_000n },
    { oom_score_adj: -1000n },
    { oom_score_adj: 1000n },
    ...['0', '0-3,8', '0-15:2/4', 'all', 'N', '0-N'].map((cpuset_cpus) => ({ cpuset_cpus, cpuset_mems: cpuset_cpus })),
    ...['64KB', '2MB', '1GB'].map((page_size) => ({ hugepage_limits: [{ page_size, limit: 0n }] })),
    { unified: { 'memory.high': 'max', 'memory.oom.group': '1' } },
  ])('validateResources accepts %o', (linux) => {
    expect(() => validateResources(received(linux))).not.toThrow();
  });
});

describe('invalid resources', () => {
  test.each<[string, Partially<LinuxContainerResources>]>([
    ...[-2n, LEAST, 1n, 4095n, 2n ** 53n].map((value) => bad('memory_limit_in_bytes', value)),
    ...[-2n, LEAST, 2n ** 53n].map((value) => bad('cpu_quota', value)),
    ...[-1n, LEAST, 2n ** 53n].map((value) => bad('cpu_period', value)),
    ...[-1n, LEAST, MOST, 2n ** 64n / 9999n + 1n].map((value) => bad('cpu_shares', value)),
    ...[-2n, LEAST, 2n ** 53n].map((value) => bad('memory_swap_limit_in_bytes', value)),
    ...[-1001n, 1001n, LEAST, MOST].map((value) => bad('oom_score_adj', value)),
    ['below the memory limit 8192', { memory_limit_in_bytes: 8192n, memory_swap_limit_in_bytes: 8191n }],
    ...['x', '0-', ',', '0,', '-1', '0 1', '../x', '0\n', '0\0', '1'.repeat(4097)].flatMap((list) => [
      bad('cpuset_cpus', list),
      bad('cpuset_mems', list),
    ]),
    ...['', '../2MB', '2MB/..', '2MB.max', '02MB', '2'].map((page_size): [string, object] => [
      'hugepage_limits',
      { hugepage_limits: [{ page_size, limit: 1n }] },
    ]),
    ['"../x"', { unified: { '../x': '1' } }],
    ['"cgroup.procs"', { unified: { 'memory.high': '1', 'cgroup.procs': '1' } }],
  ])('validateResources reports %s for %o', (words, linux) => {
    expect(() => validateResources(received(linux))).toThrow(invalid);
    expect(() => validateResources(received(linux))).toThrow(words);
  });

  // validate.speed.test.ts measures how long that takes.
  test('validateResources rejects a cpuset list of 480,001 characters', () => {
    const cpuset_cpus = `${'0-1:1/1,'.repeat(60_000)}x`;
    expect(() => validateResources(received({ cpuset_cpus }))).toThrow(invalid);
  });

  function bad(field: keyof LinuxContainerResources, value: bigint | string): [string, object] {
    return [field, { [field]: value }];
  }
});

describe('validatePodRequest', () => {
  const subject = { text: 'pod default/web', ids: {} };
  const validate = (resources: object, overhead: object): void => {
    const request = {
      pod_sandbox_id: 'x',
      resources: received(resources),
      overhead: received(overhead),
    };
    validatePodRequest(subject, request);
  };

  test('validatePodRequest accepts an overhead below a page of memory', () => {
    validate({}, { memory_limit_in_bytes: 100n });
  });

  test.each([
    ['memory', { memory_limit_in_bytes: -1n }],
    ['shares', { cpu_shares: -1n }],
  ])('validatePodRequest rejects an overhead with negative %s', (_name, overhead) => {
    expect(() => validate({}, overhead)).toThrow(invalid);
  });

  test('validatePodRequest rejects a negative limit of a resource without an overhead', () => {
    expect(() => validate({ cpu_quota: -25_001n }, { memory_limit_in_bytes: 4096n })).toThrow(invalid);
    expect(() => validate({ memory_limit_in_bytes: -4097n }, { cpu_quota: 25_000n })).toThrow(invalid);
  });

  test('validatePodRequest rejects an invalid period, also with an overhead', () => {
    expect(() => validate({ cpu_quota: 5000n, cpu_period: 2n ** 60n }, { cpu_quota: 5000n })).toThrow(invalid);
    expect(() => validate({ cpu_quota: 5000n, cpu_period: -1n }, { cpu_quota: 5000n })).toThrow(invalid);
  });
});
