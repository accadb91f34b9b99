import protobuf from 'protobufjs';

/**
 * Requests that no protobuf client would send, as bytes of the wire format. Field numbers are those of CRI and of the
 * resize API.
 */

const delimited = (field: number): number => field * 8 + 2;

/** A request with this many entries in one of its maps. Each entry has its own key and no value. */
export function withEntries(count: number, id: string, path: readonly number[]): Buffer {
  const map = protobuf.Writer.create();
  const [field = 0, ...outer] = [...path].reverse();
  for (let index = 0; index < count; index += 1)
    map.uint32(delimited(field)).fork().uint32(delimited(1)).string(`key${index}`).ldelim();
  const inner = outer.reduce(
    (bytes, number) => protobuf.Writer.create().uint32(delimited(number)).bytes(bytes).finish(),
    map.finish(),
  );
  return Buffer.concat([protobuf.Writer.create().uint32(delimited(1)).string(id).finish(), inner]);
}

/** A request that ends in the middle of a field. */
export const truncated = (id: string): Buffer =>
  Buffer.from(protobuf.Writer.create().uint32(delimited(1)).string(id).uint32(delimited(2)).uint32(200).finish());

/** Nested groups that are never closed. */
export const nested = (): Buffer => Buffer.alloc(100_000, 0x0b);

export const NO_PROTOBUF = Buffer.from('{"container_id": "not protobuf at all"}');
