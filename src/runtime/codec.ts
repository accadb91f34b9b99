/** Decodes and encodes CRI messages. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import protobuf from 'protobufjs/light.js';
import { encodeMessage, KiB, messageOf, messageTypes } from '../core/index.ts';
import cri from './cri.proto.json' with { type: 'json' };
import type { Messages, Partially } from './messages.ts';

const typeOf = messageTypes(cri, 'runtime.v1');

/** Decodes a CRI message and skips unknown fields. Throws RangeError if the bytes are not such a message. */
export function decode<Name extends keyof Messages>(name: Name, bytes: Uint8Array): Messages[Name] {
  const type = typeOf(name);
  return type.toObject(read(type, bytes), {
    longs: BigInt,
    defaults: true,
    arrays: true,
    objects: true,
  }) as Messages[Name];
}

/** The responses that list all pods or containers of the node. */
type List = 'ListPodSandboxResponse' | 'ListContainersResponse';

/** Bytes of a list that are decoded in one turn of the event loop: about 1 ms. */
const PORTION = 32 * KiB;

/**
 * Decodes a list as {@link decode} does, one portion per turn of the event loop: on a node with many pods, decoding all
 * at once takes many milliseconds. A message of repeated fields is the concatenation of its parts. Rejects as {@link
 * decode} throws.
 */
export async function decodeList<Name extends List>(name: Name, bytes: Uint8Array): Promise<Messages[Name]> {
  const all: Record<string, unknown[]> = {};
  for (const [index, portion] of portionsOf(bytes).entries()) {
    if (index > 0) await nextTurn();
    for (const [field, items] of Object.entries(decode(name, portion) as Readonly<Record<string, unknown[]>>))
      (all[field] ??= []).push(...items);
  }
  return all as unknown as Messages[Name];
}

/** Splits a message between its fields. One that is none is returned as a whole. */
function portionsOf(bytes: Uint8Array): readonly Uint8Array[] {
  if (bytes.length <= PORTION) return [bytes];
  const portions: Uint8Array[] = [];
  const reader = protobuf.Reader.create(bytes);
  let begin = 0;
  try {
    while (reader.pos < reader.len) {
      reader.skipType(reader.uint32() & 7);
      if (reader.pos - begin < PORTION && reader.pos < reader.len) continue;
      portions.push(bytes.subarray(begin, reader.pos));
      begin = reader.pos;
    }
  } catch {
    return [bytes];
  }
  return portions;
}

function read(type: protobuf.Type, bytes: Uint8Array): protobuf.Message {
  try {
    return type.decode(bytes);
  } catch (error) {
    // protobufjs throws errors of several classes: a string that is not UTF-8 is a TypeError.
    throw new RangeError(`not a ${type.name}: ${messageOf(error)}`, { cause: error });
  }
}

/** Encodes a CRI message. */
export function encode<Name extends keyof Messages>(name: Name, message: Partially<Messages[Name]>): Buffer {
  return encodeMessage(typeOf(name), message);
}
