import { delimitedKey, Fields } from '../../src/core/protobuf.ts';
import { bytes } from '../protobuf.ts';

/**
 * containerd lists containers in any order, and Go writes the entries of a map in any order, so that two answers with
 * the same content have different bytes. Recorded answers are sorted: they are stored once, and as long as before.
 */

/** The fields of a message, by number, whose entries are in any order, and those of their messages. */
interface Unordered {
  readonly [field: number]: Unordered;
}

const map: Unordered = {};

/** The fields of responses of `runtime.v1.RuntimeService`. */
const unordered: Readonly<Record<string, Unordered>> = {
  // PodSandbox: labels, annotations.
  ListPodSandbox: { 1: { 5: map, 6: map } },
  // Container: labels, annotations.
  ListContainers: { 1: { 8: map, 9: map } },
  // ContainerStats: attributes, with labels and annotations.
  ListContainerStats: { 1: { 1: { 3: map, 4: map } } },
};

/** Returns the response in a fixed order. */
export function canonicalResponse(path: string, response: Buffer): Buffer {
  const fields = unordered[path.slice(path.lastIndexOf('/') + 1)];
  return fields === undefined ? response : canonical(response, fields);
}

interface Field {
  readonly number: number;
  readonly bytes: Buffer;
}

function canonical(message: Buffer, of: Unordered): Buffer {
  const fields = fieldsOf(message).map(({ number, bytes: field }) => {
    const inner = of[number];
    return { number, bytes: inner === undefined ? field : canonicalField(number, field, inner) };
  });
  for (const number of Object.keys(of).map(Number)) {
    const places = fields.flatMap((field, place) => (field.number === number ? [place] : []));
    const sorted = places.map((place) => fields[place]!).sort((a, b) => Buffer.compare(a.bytes, b.bytes));
    places.forEach((place, order) => (fields[place] = sorted[order]!));
  }
  return Buffer.concat(fields.map(({ bytes: field }) => field));
}

function canonicalField(number: number, field: Buffer, of: Unordered): Buffer {
  let content = Buffer.alloc(0);
  const fields = new Fields(field);
  while (fields.next()) if (fields.key === delimitedKey(number)) content = Buffer.from(fields.content());
  return bytes(number, canonical(content, of));
}

/** Splits a message into its fields. */
function fieldsOf(message: Buffer): Field[] {
  const found: Field[] = [];
  const fields = new Fields(message);
  while (fields.next()) found.push({ number: fields.key >>> 3, bytes: message.subarray(fields.keyStart, fields.end) });
  return found;
}
