/**
 * Reads and changes the container statuses in encoded messages. kubelet asks for the status of every container all the time, and
 * decoding the whole message, of which the shim reads seven fields, took longer than everything else the shim did for the call.
 */
import {
  type FieldReader,
  createWriter,
  delimitedKey,
  readFields,
  readSubMessage,
  varintKey,
} from '../core/protobuf/index.ts';
import { type Place, placesOf, spliceInto, spliceIntoPlaces } from './splice.ts';

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

/** Reads the fields that the shim needs from a ContainerStatusResponse. Throws RangeError if the bytes are not a message. */
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
