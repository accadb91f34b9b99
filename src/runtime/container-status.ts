/**
 * Reads and changes the container statuses in encoded messages. kubelet requests the status of every container all the
 * time. The shim needs seven fields of it, and decoding the whole message took longer than all other work for the call.
 */
import {
  createWriter,
  delimitedKey,
  type FieldReader,
  readFields,
  readSubMessage,
  varintKey,
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
const KEY_OF: Readonly<Record<keyof ReportedResources, number>> = {
  cpu_period: varintKey(1),
  cpu_quota: varintKey(2),
  cpu_shares: varintKey(3),
  memory_limit_in_bytes: varintKey(4),
  memory_swap_limit_in_bytes: varintKey(10),
};
const NAME_OF = new Map(Object.entries(KEY_OF).map(([name, key]) => [key, name as keyof ReportedResources]));

// Field numbers: ContainerStatusResponse.status, and below it the fields of ContainerStatus and ContainerResources.
const STATUS = 1;
const ID = 1;
const STATE = 3;
const RESOURCES = 16;
const LINUX = 1;

type Fields = Partial<Record<keyof ReportedResources, number>>;

interface MutableStatus {
  id: string;
  state: number;
  resources: Fields | undefined;
}

/** Reads the fields of a ContainerStatusResponse that the shim needs. Throws RangeError if it is no message. */
export function readContainerStatus(response: Uint8Array): ReportedStatus {
  const status: MutableStatus = { id: '', state: 0, resources: undefined };
  readFields(response, (key, reader) => {
    if (key !== delimitedKey(STATUS)) return false;
    readSubMessage(reader, (inner) => readStatusField(inner, reader, status));
    return true;
  });
  return reported(status);
}

/** Returns the response with these resources in place of its own, and all other bytes as they are. */
export function withResources(response: Uint8Array, changes: Readonly<Fields>): Buffer {
  return spliceInto(response, [STATUS, RESOURCES, LINUX], encodeFields(changes));
}

/** One of several container statuses in a message, and its position there. */
export interface PlacedStatus extends ReportedStatus {
  readonly place: Place;
}

/** Reads a message's repeated field of container statuses. Throws RangeError if the bytes are not a message. */
export function readContainerStatuses(message: Uint8Array, field: number): readonly PlacedStatus[] {
  return placesOf(message, field).map((place) => {
    const status: MutableStatus = { id: '', state: 0, resources: undefined };
    readFields(message.subarray(place.start, place.end), (key, reader) => readStatusField(key, reader, status));
    return { ...reported(status), place };
  });
}

/**
 * Returns the message with these resources in place of those of the statuses at these positions, and all other bytes as
 * they are. Positions are in the order of the message.
 */
export function withResourcesOfStatuses(
  message: Uint8Array,
  changes: readonly { readonly place: Place; readonly resources: Readonly<Fields> }[],
): Buffer {
  const additions = changes.map(({ place, resources }) => ({ place, addition: encodeFields(resources) }));
  return spliceIntoPlaces(message, [RESOURCES, LINUX], additions);
}

function encodeFields(fields: Readonly<Fields>): Uint8Array {
  const writer = createWriter();
  for (const [name, value] of Object.entries(fields) as [keyof ReportedResources, number][])
    writer.uint32(KEY_OF[name]).int64(value);
  return writer.finish();
}

const noResources: ReportedResources = {
  cpu_period: 0,
  cpu_quota: 0,
  cpu_shares: 0,
  memory_limit_in_bytes: 0,
  memory_swap_limit_in_bytes: 0,
};

const reported = ({ id, state, resources }: MutableStatus): ReportedStatus => ({
  id,
  state,
  resources: resources && { ...noResources, ...resources },
});

function readStatusField(key: number, reader: FieldReader, status: MutableStatus): boolean {
  switch (key) {
    case delimitedKey(ID):
      status.id = reader.string();
      return true;
    case varintKey(STATE):
      status.state = reader.int32();
      return true;
    case delimitedKey(RESOURCES):
      readSubMessage(reader, (inner) => {
        if (inner !== delimitedKey(LINUX)) return false;
        const resources = (status.resources ??= {});
        readSubMessage(reader, (limit) => readLimit(limit, reader, resources));
        return true;
      });
      return true;
    default:
      return false;
  }
}

function readLimit(key: number, reader: FieldReader, resources: Fields): boolean {
  const name = NAME_OF.get(key);
  if (name === undefined) return false;
  resources[name] = Number(reader.int64());
  return true;
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

/** Field of `info` (map<string, string>) in verbose PodSandboxStatus, ContainerStatus and Status responses. */
const INFO = 2;

/** Returns the response with an entry appended to its `info`. All other bytes stay as they are. */
export function withInfo(response: Uint8Array, key: string, value: string): Buffer {
  return Buffer.concat([response, writeMapEntry(createWriter(), INFO, key, value).finish()]);
}
