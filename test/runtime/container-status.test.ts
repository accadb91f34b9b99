import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { decode, encode, readContainerStatus, withResources } from '../../src/runtime/index.ts';

const safe = fc.integer({ min: -(2 ** 53 - 1), max: 2 ** 53 - 1 });
const fields = [
  'cpu_period',
  'cpu_quota',
  'cpu_shares',
  'memory_limit_in_bytes',
  'memory_swap_limit_in_bytes',
] as const;
const resources = fc.record(
  Object.fromEntries(fields.map((name) => [name, safe])) as Record<(typeof fields)[number], typeof safe>,
);
const wire = (values: Partial<Record<(typeof fields)[number], number>>) =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, BigInt(value)]));

describe('a ContainerStatusResponse read in place', () => {
  test('has the values of the decoded message', () => {
    fc.assert(
      fc.property(fc.string(), fc.integer({ min: 0, max: 3 }), resources, (id, state, values) => {
        const bytes = encode('ContainerStatusResponse', {
          status: {
            id,
            state,
            metadata: { name: 'web' },
            resources: { linux: { ...wire(values), cpuset_cpus: '0-3' } },
          },
          info: { info: '{"pid":1}' },
        });
        expect(readContainerStatus(bytes)).toEqual({ id, state, resources: values });
      }),
    );
  });

  test('may have no resources, and may be empty', () => {
    const bare = encode('ContainerStatusResponse', { status: { id: 'a', state: 1 } });
    expect(readContainerStatus(bare)).toEqual({ id: 'a', state: 1, resources: undefined });
    expect(readContainerStatus(Buffer.alloc(0))).toEqual({ id: '', state: 0, resources: undefined });
  });

  test('has replaced values, and all other fields unchanged', () => {
    fc.assert(
      fc.property(resources, fc.subarray([...fields]), resources, (before, names, values) => {
        const message = {
          status: { id: 'abc', state: 1, resources: { linux: { ...wire(before), cpuset_cpus: '0-3' } } },
          info: { info: '{}' },
        };
        const changes = Object.fromEntries(names.map((name) => [name, values[name]]));
        const changed = withResources(encode('ContainerStatusResponse', message), changes);
        expect(readContainerStatus(changed)).toEqual({ id: 'abc', state: 1, resources: { ...before, ...changes } });
        const linux = { ...message.status.resources.linux, ...wire(changes) };
        expect(decode('ContainerStatusResponse', changed)).toEqual(
          decode(
            'ContainerStatusResponse',
            encode('ContainerStatusResponse', { ...message, status: { ...message.status, resources: { linux } } }),
          ),
        );
      }),
    );
  });

  test('throws for invalid bytes, and never reads past their end', () => {
    const whole = encode('ContainerStatusResponse', {
      status: { id: 'abc', state: 1, resources: { linux: { cpu_period: 100_000n } } },
    });
    for (let length = 1; length < whole.length; length += 1)
      expect(() => readContainerStatus(whole.subarray(0, length)), `${length} bytes`).toThrow();
    // The inner message has a larger length than the outer one.
    expect(() => readContainerStatus(Buffer.from([0x0a, 0x02, 0x0a, 0x05, 0x12, 0x03, 1, 2, 3]))).toThrow(RangeError);
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => {
        try {
          readContainerStatus(bytes);
        } catch (error) {
          expect(error).toBeInstanceOf(Error);
        }
      }),
    );
  });
});
