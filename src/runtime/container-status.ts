/**
 * Reads and changes the container statuses in encoded messages. kubelet requests the status of every container all the
 * time. The shim needs seven fields of it, and decoding the whole message took longer than all other work for the call.
 */
import {
  createWriter,
  delimitedKey,
  type FieldReader,
  readFields,
  readInt64,
  readSubMessage,
  varintKey,
  writeInt64,
  writeMapEntry,
} from '../core/index.ts';

/** The limits in a container's status, by their names on the wire. 0 means absent. Values above 2^53 are inexact. */
export interface ReportedResources {
  readonly cpu_period: number;
  readonly cpu_quota: number;
  readonly cpu_shares: number;
  readonly memory_limit_in_bytes: number;
  readonly memory_swap_limit_in_bytes: number;
}

export interface ReportedStatus {
  readonly id: string;
  /** A value of ContainerState. */
  readonly state: number;
  /** Undefined if the response has no resources. */
  readonly resources: ReportedResources | undefined;
}

/** Keys of LinuxContainerResources. */
const KEY = {
  cpu_period: varintKey(1),
  cpu_quota: varintKey(2),
  cpu_shares: varintKey(3),
  memory_limit_in_bytes: varintKey(4),
  memory_swap_limit_in_bytes: varintKey(10),
} as const;
const NAMES = Object.keys(KEY) as (keyof ReportedResources)[];

// Field numbers: ContainerStatusResponse.status, and below it the fields of ContainerStatus and ContainerResources.
const STATUS = 1;
const ID = 1;
const STATE = 3;
const RESOURCES = 16;
const LINUX = 1;

type Mutable<Type> = { -readonly [Key in keyof Type]: Type[Key] };
type Fields = Partial<ReportedResources>;

/** The status of a container, and where in the response its resources are. */
class FoundStatus implements ReportedStatus {
  id = '';
  state = 0;
  resources: Mutable<ReportedResources> | undefined;
  /** The last status of a ContainerStatusResponse, in it the last resources, and in them the last Linux resources. */
  readonly places: Place[] = [];
}

/** A status that {@link readContainerStatus} has read. */
export type ReadStatus = ReportedStatus & { readonly places: readonly Place[] };

/** Reads the fields of a ContainerStatusResponse that the shim needs. Throws RangeError if it is no message. */
export function readContainerStatus(response: Uint8Array): ReadStatus {
  const status = new FoundStatus();
  readFields(response, (key, reader) => {
    if (key !== delimitedKey(STATUS)) return false;
    const lengthStart = reader.pos;
    status.places.length = 0;
    const start = readSubMessage(reader, (inner) => readStatusField(inner, reader, status));
    status.places.unshift({ lengthStart, start, end: reader.pos });
    return true;
  });
  return status;
}

/**
 * Returns the response with these resources in place of its own, and all other bytes as they are.
 * @param places as {@link readContainerStatus} has found them in this response
 */
export function withResources(response: Uint8Array, { places }: ReadStatus, changes: Fields): Buffer {
  const addition = encodeFields(changes);
  const [status, resources, linux] = places;
  if (status === undefined || resources === undefined || linux === undefined)
    return spliceInto(response, [STATUS, RESOURCES, LINUX], addition);
  return spliceIntoNested(response, [status, resources, linux], addition);
}

/** One of several container statuses in a message, and its position there. */
export interface PlacedStatus extends ReportedStatus {
  readonly place: Place;
}

/** Reads a message's repeated field of container statuses. Throws RangeError if the bytes are not a message. */
export function readContainerStatuses(message: Uint8Array, field: number): readonly PlacedStatus[] {
  return placesOf(message, field).map((place) => {
    const status = new FoundStatus();
    readFields(message.subarray(place.start, place.end), (key, reader) => readStatusField(key, reader, status));
    const { id, state, resources } = status;
    return { id, state, resources, place };
  });
}

/**
 * Returns the message with these resources in place of those of the statuses at these positions, and all other bytes as
 * they are. Positions are in the order of the message.
 */
export function withResourcesOfStatuses(
  message: Uint8Array,
  changes: readonly { readonly place: Place; readonly resources: Fields }[],
): Buffer {
  const additions = changes.map(({ place, resources }) => ({ place, addition: encodeFields(resources) }));
  return spliceIntoPlaces(message, [RESOURCES, LINUX], additions);
}

/** A key has one byte, and a varint up to ten. */
const MOST_BYTES = NAMES.length * 11;

function encodeFields(fields: Fields): Uint8Array {
  const bytes = Buffer.allocUnsafe(MOST_BYTES);
  let at = 0;
  for (const name of NAMES) {
    const value = fields[name];
    if (value === undefined) continue;
    bytes[at] = KEY[name];
    at = writeInt64(bytes, at + 1, value);
  }
  return bytes.subarray(0, at);
}

function readStatusField(key: number, reader: FieldReader, status: FoundStatus): boolean {
  switch (key) {
    case delimitedKey(ID):
      status.id = reader.string();
      return true;
    case varintKey(STATE):
      status.state = reader.int32();
      return true;
    case delimitedKey(RESOURCES):
      readResources(reader, status);
      return true;
    default:
      return false;
  }
}

function readResources(reader: FieldReader, status: FoundStatus): void {
  const { places } = status;
  const lengthStart = reader.pos;
  places.length = 0;
  const start = readSubMessage(reader, (key) => {
    if (key !== delimitedKey(LINUX)) return false;
    const resources = (status.resources ??= {
      cpu_period: 0,
      cpu_quota: 0,
      cpu_shares: 0,
      memory_limit_in_bytes: 0,
      memory_swap_limit_in_bytes: 0,
    });
    const linuxStart = reader.pos;
    const inner = readSubMessage(reader, (limit) => readLimit(limit, reader, resources));
    places[0] = { lengthStart: linuxStart, start: inner, end: reader.pos };
    return true;
  });
  places.unshift({ lengthStart, start, end: reader.pos });
}

function readLimit(key: number, reader: FieldReader, resources: Mutable<ReportedResources>): boolean {
  switch (key) {
    case KEY.cpu_period:
      resources.cpu_period = readInt64(reader);
      return true;
    case KEY.cpu_quota:
      resources.cpu_quota = readInt64(reader);
      return true;
    case KEY.cpu_shares:
      resources.cpu_shares = readInt64(reader);
      return true;
    case KEY.memory_limit_in_bytes:
      resources.memory_limit_in_bytes = readInt64(reader);
      return true;
    case KEY.memory_swap_limit_in_bytes:
      resources.memory_swap_limit_in_bytes = readInt64(reader);
      return true;
    default:
      return false;
  }
}

/**
 * Changes an encoded message without decoding it, so that unknown fields and all other bytes stay as they are.
 *
 * Appending a second occurrence of a sub-message is valid protobuf, since decoders must merge the two. But protobufjs
 * 7, which grpc-js clients use, only keeps the last one: the status would lose everything except our own values.
 * Therefore the addition goes into the existing sub-message.
 */

/**
 * Returns the message with `addition` (encoded fields) at the end of the sub-message at `path` (field numbers,
 * outermost first). Scalars in the addition override earlier ones. Creates sub-messages that do not exist. Throws
 * RangeError if the bytes are not a message.
 */
export function spliceInto(message: Uint8Array, path: readonly number[], addition: Uint8Array): Buffer {
  const [field, ...rest] = path;
  if (field === undefined) return Buffer.concat([message, addition]);
  const place = placesOf(message, field).at(-1);
  if (place !== undefined) return spliceIntoPlaces(message, rest, [{ place, addition }]);
  const made = spliceInto(new Uint8Array(0), rest, addition);
  const header = createWriter().uint32(delimitedKey(field)).uint32(made.length).finish();
  return Buffer.concat([message, header, made]);
}

/** The position of a length-delimited field in a message: its length, which follows its key, and its content. */
interface Place {
  readonly lengthStart: number;
  readonly start: number;
  readonly end: number;
}

/** Returns all positions of a length-delimited field. Throws RangeError if the bytes are no message. */
function placesOf(message: Uint8Array, field: number): readonly Place[] {
  const places: Place[] = [];
  const wanted = delimitedKey(field);
  readFields(message, (key, reader) => {
    if (key !== wanted) return false;
    const lengthStart = reader.pos;
    const length = reader.uint32();
    places.push({ lengthStart, start: reader.pos, end: reader.pos + length });
    reader.skip(length);
    return true;
  });
  return places;
}

/**
 * Returns the message with each addition spliced into the sub-message at its position, as {@link spliceInto} does with
 * `path`. Positions are in the order of the message.
 */
function spliceIntoPlaces(
  message: Uint8Array,
  path: readonly number[],
  additions: readonly { readonly place: Place; readonly addition: Uint8Array }[],
): Buffer {
  const parts: Uint8Array[] = [];
  let copied = 0;
  for (const { place, addition } of additions) {
    const changed = spliceInto(message.subarray(place.start, place.end), path, addition);
    const length = createWriter().uint32(changed.length).finish();
    parts.push(message.subarray(copied, place.lengthStart), length, changed);
    copied = place.end;
  }
  return Buffer.concat([...parts, message.subarray(copied)]);
}

/** The most bytes of a length. */
const LENGTH_BYTES = 5;

/**
 * Returns the message with `addition` at the end of the last of these sub-messages, each of which is in the one before.
 * All other bytes stay as they are, except the lengths.
 */
function spliceIntoNested(message: Uint8Array, places: readonly Place[], addition: Uint8Array): Buffer {
  // A longer sub-message may make the length of the one around it longer.
  const growths: number[] = [];
  let growth = addition.length;
  for (const { lengthStart, start, end } of places.toReversed()) {
    growths.unshift(growth);
    growth += varintSize(end - start + growth) - (start - lengthStart);
  }
  const into = Buffer.allocUnsafe(message.length + addition.length + LENGTH_BYTES * places.length);
  let at = 0;
  let copied = 0;
  for (const [index, { lengthStart, start, end }] of places.entries()) {
    into.set(message.subarray(copied, lengthStart), at);
    at = writeInt64(into, at + lengthStart - copied, end - start + (growths[index] ?? 0));
    copied = start;
  }
  const { end = 0 } = places.at(-1) ?? {};
  into.set(message.subarray(copied, end), at);
  at += end - copied;
  into.set(addition, at);
  at += addition.length;
  into.set(message.subarray(end), at);
  return into.subarray(0, at + message.length - end);
}

function varintSize(value: number): number {
  let size = 1;
  for (let rest = value; rest >= 0x80; rest = Math.floor(rest / 0x80)) size += 1;
  return size;
}

/** Field of `info` (map<string, string>) in verbose PodSandboxStatus, ContainerStatus and Status responses. */
const INFO = 2;

/** Returns the response with an entry appended to its `info`. All other bytes stay as they are. */
export function withInfo(response: Uint8Array, key: string, value: string): Buffer {
  return Buffer.concat([response, writeMapEntry(createWriter(), INFO, key, value).finish()]);
}
