import fc from 'fast-check';
import protobuf from 'protobufjs';
import { describe, expect, test } from 'vitest';
import { decode, encode } from '../../src/runtime/codec.ts';
import { spliceInto } from '../../src/runtime/container-status.ts';

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
