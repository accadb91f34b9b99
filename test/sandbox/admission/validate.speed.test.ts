import { expect, test } from 'vitest';
import { decode, encode } from '../../../src/runtime/codec.ts';
import { validateResources } from '../../../src/sandbox/admission/validate.ts';

test('a cpuset list of 540,000 characters is rejected within a second', () => {
  const linux = { cpuset_cpus: `${'0-1:1/1,'.repeat(60_000)}x` };
  const request = decode('UpdateContainerResourcesRequest', encode('UpdateContainerResourcesRequest', { linux }));
  const invalid = expect.objectContaining({ code: 3, reason: 'INVALID_VALUE' }) as Error;
  const start = performance.now();
  expect(() => validateResources(request.linux!)).toThrow(invalid);
  expect(performance.now() - start).toBeLessThan(1000);
});
