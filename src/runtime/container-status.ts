/**
 * Reads and changes the container statuses in encoded messages. kubelet requests the status of every container all the
 * time. The shim needs seven fields of it, and decoding the whole message took longer than all other work for the call.
 */
import {
  contentsOf,
  createWriter,
  delimitedKey,
  Fields,
  textOf,
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

// Field numbers: ContainerStatusResponse.status, and below it the fields of ContainerStatus and ContainerResources.
const STATUS = 1;
const ID = delimitedKey(1);
const STATE = varintKey(3);
const RESOURCES = 16;
const LINUX = 1;

type Mutable<Type> = { -readonly [Key in keyof Type]: Type[Key] };
type Changes = Partial<ReportedResources>;

/** The status of a container, and where in the message its resources are. */
class FoundStatus implements ReportedStatus {
  id = '';
  state = 0;
  resources: Mutable<ReportedResources> | undefined;
  /** Its last occurrence, in that its last resources, and in these its last Linux resources. */
  place: Place | undefined;
  resourcesPlace: Place | undefined;
  linuxPlace: Place | undefined;
}

/** A status that {@link readContainerStatus} has read. */
export type ReadStatus = Readonly<FoundStatus>;

/** Field number of ContainerStatusRequest.container_id. */
const CONTAINER_ID = 1;

/** Returns the id in a ContainerStatusRequest; empty without one. Throws RangeError if it is no message. */
export function readContainerId(request: Uint8Array): string {
  return textOf(contentsOf(request, CONTAINER_ID).at(-1));
}

/** Reads the fields of a ContainerStatusResponse that the shim needs. Throws RangeError if it is no message. */
export function readContainerStatus(response: Uint8Array): ReadStatus {
  const status = new FoundStatus();
  const fields = new Fields(response);
  while (fields.next()) {
    if (fields.key !== delimitedKey(STATUS)) continue;
    status.place = placeOf(fields);
    readStatus(fields.inner(), status);
  }
  return status;
}

/**
 * Returns the response with these resources in place of its own, and all other bytes as they are.
 * @param status as {@link readContainerStatus} has read it from this response
 */
export function withResources(response: Uint8Array, status: ReadStatus, changes: Changes): Buffer {
  const { place, resourcesPlace, linuxPlace } = status;
  const addition = encodeFields(changes);
  return place === undefined || resourcesPlace === undefined || linuxPlace === undefined
    ? spliceInto(response, [STATUS, RESOURCES, LINUX], addition)
    : spliceIntoLinux(response, { place, resourcesPlace, linuxPlace }, addition);
}

/** One of several container statuses in a message, and its position there. */
export interface PlacedStatus extends ReportedStatus {
  readonly place: Place;
}

/** Reads a message's repeated field of container statuses. Throws RangeError if the bytes are not a message. */
export function readContainerStatuses(message: Uint8Array, field: number): readonly PlacedStatus[] {
  return placesOf(message, field).map((place) => {
    const status = new FoundStatus();
    readStatus(new Fields(message, place.start, place.end), status);
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
  changes: readonly { readonly place: Place; readonly resources: Changes }[],
): Buffer {
  const additions = changes.map(({ place, resources }) => ({ place, addition: encodeFields(resources).slice() }));
  return spliceIntoPlaces(message, [RESOURCES, LINUX], additions);
}

/** Memory for encoded fields: a key has one byte, and a varint up to ten. */
const scratch = new Uint8Array(Object.keys(KEY).length * 11);

/** Encodes fields. The bytes are valid until the next call. */
function encodeFields(changes: Changes): Uint8Array {
  let at = 0;
  const add = (key: number, value: number | undefined): void => {
    if (value === undefined) return;
    scratch[at] = key;
    at = writeInt64(scratch, at + 1, value);
  };
  add(KEY.cpu_period, changes.cpu_period);
  add(KEY.cpu_quota, changes.cpu_quota);
  add(KEY.cpu_shares, changes.cpu_shares);
  add(KEY.memory_limit_in_bytes, changes.memory_limit_in_bytes);
  add(KEY.memory_swap_limit_in_bytes, changes.memory_swap_limit_in_bytes);
  return scratch.subarray(0, at);
}

/** Reads a ContainerStatus. */
function readStatus(fields: Fields, status: FoundStatus): void {
  status.resourcesPlace = undefined;
  status.linuxPlace = undefined;
  while (fields.next()) {
    if (fields.key === ID) status.id = textOf(fields.content());
    else if (fields.key === STATE) status.state = fields.integer() | 0;
    else if (fields.key === delimitedKey(RESOURCES)) readResources(fields, status);
  }
}

function readResources(field: Fields, status: FoundStatus): void {
  status.resourcesPlace = placeOf(field);
  status.linuxPlace = undefined;
  const fields = field.inner();
  while (fields.next()) {
    if (fields.key !== delimitedKey(LINUX)) continue;
    status.linuxPlace = placeOf(fields);
    status.resources ??= {
      cpu_period: 0,
      cpu_quota: 0,
      cpu_shares: 0,
      memory_limit_in_bytes: 0,
      memory_swap_limit_in_bytes: 0,
    };
    readLimits(fields.inner(), status.resources);
  }
}

function readLimits(fields: Fields, resources: Mutable<ReportedResources>): void {
  while (fields.next()) {
    if (fields.key === KEY.cpu_period) resources.cpu_period = fields.integer();
    else if (fields.key === KEY.cpu_quota) resources.cpu_quota = fields.integer();
    else if (fields.key === KEY.cpu_shares) resources.cpu_shares = fields.integer();
    else if (fields.key === KEY.memory_limit_in_bytes) resources.memory_limit_in_bytes = fields.integer();
    else if (fields.key === KEY.memory_swap_limit_in_bytes) resources.memory_swap_limit_in_bytes = fields.integer();
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

const placeOf = ({ lengthStart, start, end }: Fields): Place => ({ lengthStart, start, end });

/** Returns all positions of a length-delimited field. Throws RangeError if the bytes are no message. */
function placesOf(message: Uint8Array, field: number): readonly Place[] {
  const places: Place[] = [];
  const fields = new Fields(message);
  while (fields.next()) if (fields.key === delimitedKey(field)) places.push(placeOf(fields));
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

/** Where the Linux resources of a status are. */
type LinuxPlaces = { readonly [Name in 'place' | 'resourcesPlace' | 'linuxPlace']: Place };

/** Returns the message with `addition` at the end of the Linux resources. All other bytes stay but the lengths. */
function spliceIntoLinux(message: Uint8Array, places: LinuxPlaces, addition: Uint8Array): Buffer {
  const { place, resourcesPlace, linuxPlace } = places;
  // A longer sub-message may make the length of the one around it longer.
  const ofLinux = sizeOf(linuxPlace, addition.length);
  const ofResources = sizeOf(resourcesPlace, growthOf(linuxPlace, ofLinux));
  const ofStatus = sizeOf(place, growthOf(resourcesPlace, ofResources));
  const source = Buffer.isBuffer(message) ? message : Buffer.from(message.buffer, message.byteOffset, message.length);
  const into = Buffer.allocUnsafe(source.length + addition.length + 3 * LENGTH_BYTES);
  let at = source.copy(into, 0, 0, place.lengthStart);
  at = writeInt64(into, at, ofStatus);
  at += source.copy(into, at, place.start, resourcesPlace.lengthStart);
  at = writeInt64(into, at, ofResources);
  at += source.copy(into, at, resourcesPlace.start, linuxPlace.lengthStart);
  at = writeInt64(into, at, ofLinux);
  at += source.copy(into, at, linuxPlace.start, linuxPlace.end);
  into.set(addition, at);
  at += addition.length;
  at += source.copy(into, at, linuxPlace.end);
  return into.subarray(0, at);
}

/** The size of a sub-message whose content grows by this many bytes. */
const sizeOf = ({ start, end }: Place, growth: number): number => end - start + growth;

/** By how many bytes a sub-message and its length grow, if its new size is this. */
const growthOf = ({ lengthStart, end }: Place, size: number): number => varintSize(size) + size - (end - lengthStart);

function varintSize(value: number): number {
  let size = 1;
  for (let rest = value; rest >= 0x80; rest = Math.floor(rest / 0x80)) size += 1;
  return size;
}

/** Field of `info` (map<string, string>) in verbose PodSandboxStatus, ContainerStatus and Status responses. */
const INFO = 2;

/** Returns an encoded entry of `info`, to be appended to a response. */
export function infoEntry(key: string, value: string): Uint8Array {
  return writeMapEntry(createWriter(), INFO, key, value).finish();
}
