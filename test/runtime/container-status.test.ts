import fc from 'fast-check';
import protobuf from 'protobufjs';
import { describe, expect, test } from 'vitest';
import { contentsOf, createWriter, delimitedKey } from '../../src/core/protobuf.ts';
import { decode, encode } from '../../src/runtime/codec.ts';
import {
  readContainerStatus,
  readContainerStatuses,
  spliceInto,
  withResources,
  withResourcesOfStatuses,
} from '../../src/runtime/container-status.ts';

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
/** The key of memory_limit_in_bytes. */
const KEY_OF_MEMORY = 0x20;
const wire = (values: Partial<Record<(typeof fields)[number], number>>) =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, BigInt(value)]));

describe('a ContainerStatusResponse read in place', () => {
  test('readContainerStatus returns the values of the decoded message', () => {
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
        expect(readContainerStatus(bytes)).toMatchObject({ id, state, resources: values });
      }),
    );
  });

  test('readContainerStatus accepts a response without resources and an empty response', () => {
    const bare = encode('ContainerStatusResponse', { status: { id: 'a', state: 1 } });
    expect(readContainerStatus(bare)).toMatchObject({ id: 'a', state: 1, resources: undefined });
    expect(readContainerStatus(Buffer.alloc(0))).toMatchObject({ id: '', state: 0, resources: undefined });
  });

  test('withResources replaces values and keeps all other fields', () => {
    fc.assert(
      fc.property(resources, fc.subarray([...fields]), resources, (before, names, values) => {
        const message = {
          status: { id: 'abc', state: 1, resources: { linux: { ...wire(before), cpuset_cpus: '0-3' } } },
          info: { info: '{}' },
        };
        const changes = Object.fromEntries(names.map((name) => [name, values[name]]));
        const response = encode('ContainerStatusResponse', message);
        const changed = withResources(response, readContainerStatus(response), changes);
        expect(readContainerStatus(changed)).toMatchObject({
          id: 'abc',
          state: 1,
          resources: { ...before, ...changes },
        });
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

  test('withResources changes the last of repeated sub-messages, as spliceInto does', () => {
    const wrap = (field: number, parts: readonly Uint8Array[]): Uint8Array =>
      createWriter().uint32(delimitedKey(field)).bytes(Buffer.concat(parts)).finish();
    const sized = fc.integer({ min: 0, max: 20_000 }).map((length) => wrap(99, [new Uint8Array(length)]));
    const some = (inner: fc.Arbitrary<Uint8Array>) => fc.array(fc.oneof(inner, sized), { maxLength: 3 });
    const limits = some(resources.map((values) => encode('LinuxContainerResources', wire(values))));
    const linux = some(limits.map((parts) => wrap(1, parts)));
    const status = some(linux.map((parts) => wrap(16, parts)));
    const response = some(status.map((parts) => wrap(1, parts)));
    fc.assert(
      fc.property(response, safe, (parts, value) => {
        const message = Buffer.concat(parts);
        const addition = encode('LinuxContainerResources', { memory_limit_in_bytes: BigInt(value) });
        const changed = withResources(message, readContainerStatus(message), { memory_limit_in_bytes: value });
        expect(changed).toEqual(spliceInto(message, LINUX, value === 0 ? Uint8Array.of(KEY_OF_MEMORY, 0) : addition));
      }),
    );
  });

  test('readContainerStatus throws for a truncated message, and for a field that is longer than its message', () => {
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

// ContainerEventResponse.containers_statuses and PodSandboxStatusResponse.containers_statuses.
describe.each([
  ['ContainerEventResponse', 5],
  ['PodSandboxStatusResponse', 3],
] as const)('A13: the container statuses of a %s', (name, field) => {
  const status = fc.record({ id: fc.string(), state: fc.integer({ min: 0, max: 3 }), values: fc.option(resources) });
  type Status = typeof status extends fc.Arbitrary<infer One> ? One : never;

  /** Fields that this program does not know, at every level. */
  const unknown = Buffer.from([0xf8, 0x3f, 0x2a, 0xfa, 0x3f, 3, 1, 2, 3]);
  const wrap = (number: number, content: Uint8Array): Buffer =>
    Buffer.from(createWriter().uint32(delimitedKey(number)).bytes(content).finish());

  function statusBytes({ id, state, values }: Status): Buffer {
    const bytes = encode('ContainerStatusResponse', { status: { id, state, metadata: { name: 'web' } } });
    const [known] = contentsOf(bytes, 1);
    const linux = encode('LinuxContainerResources', { ...wire(values ?? {}), cpuset_cpus: '0-3' });
    const inner = wrap(16, Buffer.concat([unknown, wrap(1, Buffer.concat([linux, unknown])), unknown]));
    return Buffer.concat([known!, unknown, ...(values === null ? [] : [inner]), unknown]);
  }

  /** Returns a message with other fields between the statuses. */
  const messageBytes = (statuses: readonly Buffer[]): Buffer =>
    Buffer.concat([...statuses.flatMap((bytes) => [unknown, wrap(field, bytes)]), unknown]);

  test('container statuses are read in order, with the values of the decoded message', () => {
    fc.assert(
      fc.property(fc.array(status, { maxLength: 5 }), (statuses) => {
        const read = readContainerStatuses(messageBytes(statuses.map(statusBytes)), field);
        expect(read.map(({ id, state, resources: found }) => [id, state, found])).toEqual(
          statuses.map(({ id, state, values }) => [id, state, values ?? undefined]),
        );
      }),
    );
  });

  test('changed values are written into each container status, and all other bytes stay, including unknown fields', () => {
    fc.assert(
      fc.property(
        fc.array(fc.record({ status, names: fc.subarray([...fields]), values: resources, isChanged: fc.boolean() }), {
          maxLength: 5,
        }),
        (cases) => {
          const before = messageBytes(cases.map((one) => statusBytes(one.status)));
          const changesOf = (one: (typeof cases)[number]) =>
            Object.fromEntries(one.names.map((name) => [name, one.values[name]]));
          const placed = readContainerStatuses(before, field);
          const changed = cases.flatMap((one, index) =>
            one.isChanged ? [{ place: placed[index]!.place, resources: changesOf(one) }] : [],
          );
          const after = withResourcesOfStatuses(before, changed);
          // Each element equals the result of ContainerStatus.
          const expected = cases.map((one) => {
            const bytes = statusBytes(one.status);
            if (!one.isChanged) return bytes;
            const response = wrap(1, bytes);
            const changed = withResources(response, readContainerStatus(response), changesOf(one));
            return Buffer.from(contentsOf(changed, 1)[0]!);
          });
          expect(after).toEqual(messageBytes(expected));
          const decoded = decode(name, after).containers_statuses;
          expect(decoded.map(({ id }) => id)).toEqual(cases.map((one) => one.status.id));
          cases.forEach((one, index) => {
            if (!one.isChanged) return;
            const linux = decoded[index]!.resources?.linux;
            expect(linux).toMatchObject(wire({ ...(one.status.values ?? {}), ...changesOf(one) }));
            if (one.status.values !== null) expect(linux?.cpuset_cpus).toBe('0-3');
          });
        },
      ),
    );
  });

  test('truncated container statuses are rejected with RangeError', () => {
    const whole = wrap(field, statusBytes({ id: 'abc', state: 1, values: null }));
    for (let length = 1; length < whole.length; length += 1)
      expect(() => readContainerStatuses(whole.subarray(0, length), field), `${length} bytes`).toThrow(RangeError);
    // A status that is longer than its field.
    expect(() => readContainerStatuses(wrap(field, Buffer.from([0x0a, 5, 1])), field)).toThrow(RangeError);
  });
});

/** The path of status, resources, linux in a ContainerStatusResponse. */
const LINUX = [1, 16, 1];
const linux = (resources: Parameters<typeof encode<'LinuxContainerResources'>>[1]) =>
  encode('LinuxContainerResources', resources);

describe('spliceInto', () => {
  const original = encode('ContainerStatusResponse', {
    status: { id: 'abc', state: 1, resources: { linux: { cpu_shares: 102n, cpu_quota: 10_000n } } },
    info: { info: '{}' },
  });

  test('spliceInto appends bytes to an existing sub-message, which stays a single occurrence', () => {
    const changed = spliceInto(original, LINUX, linux({ cpu_quota: -1n, memory_limit_in_bytes: 1024n }));
    expect(decode('ContainerStatusResponse', changed)).toMatchObject({
      status: {
        id: 'abc',
        state: 1,
        resources: { linux: { cpu_shares: 102n, cpu_quota: -1n, memory_limit_in_bytes: 1024n } },
      },
      info: { info: '{}' },
    });
    // Each field occurs once, so a decoder does not have to merge.
    const reader = protobuf.Reader.create(changed);
    const fields: number[] = [];
    while (reader.pos < reader.len) {
      const tag = reader.uint32();
      fields.push(tag >>> 3);
      reader.skipType(tag & 7);
    }
    expect(fields).toEqual([1, 2]);
  });

  test('spliceInto creates a missing sub-message', () => {
    const bare = encode('ContainerStatusResponse', { status: { id: 'abc' } });
    const changed = decode('ContainerStatusResponse', spliceInto(bare, LINUX, linux({ cpu_shares: 2n })));
    expect(changed.status).toMatchObject({ id: 'abc', resources: { linux: { cpu_shares: 2n } } });
  });

  test('spliceInto leaves unknown fields of every wire type unchanged', () => {
    const unknown = Buffer.from([
      ...[0xa0, 0x06, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], // field 100, varint -1
      ...[0xa9, 0x06, 1, 2, 3, 4, 5, 6, 7, 8], // field 101, 64 bits
      ...[0xb2, 0x06, 3, 97, 98, 99], // field 102, "abc"
      ...[0xbd, 0x06, 1, 2, 3, 4], // field 103, 32 bits
    ]);
    const changed = spliceInto(Buffer.concat([unknown, original, unknown]), LINUX, linux({ cpu_shares: 2n }));
    expect(changed.subarray(0, unknown.length)).toEqual(unknown);
    expect(changed.subarray(changed.length - unknown.length)).toEqual(unknown);
  });

  test('spliceInto changes nothing for an empty addition', () => {
    expect(spliceInto(original, LINUX, Buffer.alloc(0))).toEqual(original);
  });
});

test('spliceInto overrides existing fields with the added ones and keeps the other fields', () => {
  const int64 = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).filter((value) => value !== 0n);
  fc.assert(
    fc.property(fc.string({ maxLength: 300 }), int64, int64, int64, (id, quota, shares, memory) => {
      const message = encode('ContainerStatusResponse', {
        status: { id, resources: { linux: { cpu_quota: quota, cpu_shares: shares } } },
      });
      const changed = spliceInto(message, LINUX, linux({ cpu_shares: memory, memory_limit_in_bytes: memory }));
      expect(decode('ContainerStatusResponse', changed).status).toMatchObject({
        id,
        resources: { linux: { cpu_quota: quota, cpu_shares: memory, memory_limit_in_bytes: memory } },
      });
    }),
  );
});

test('spliceInto reads arbitrary bytes or throws RangeError, and rejects a truncated field', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
      try {
        spliceInto(bytes, LINUX, linux({ cpu_shares: 2n }));
      } catch (error) {
        expect(error).toBeInstanceOf(RangeError);
      }
    }),
  );
  expect(() => spliceInto(Buffer.from([0x0a, 0x05, 1]), LINUX, Buffer.alloc(0))).toThrow(RangeError);
});
