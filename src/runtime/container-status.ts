/**
 * Reads and changes an encoded ContainerStatusResponse. kubelet asks for the status of every container all the time, and
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
import { spliceInto } from './splice.ts';

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
  const { id, state, resources } = status;
  return { id, state, resources: resources && { ...noResources, ...resources } };
}

/** Returns the response with these resources in place of its own, and all other bytes as they are. */
export function withResources(response: Uint8Array, changes: Readonly<Fields>): Buffer {
  const writer = createWriter();
  for (const [name, value] of Object.entries(changes) as [keyof ReportedResources, number][])
    writer.uint32(KEY_OF[name]).int64(value);
  return spliceInto(response, [STATUS, RESOURCES, LINUX], writer.finish());
}

const noResources: ReportedResources = {
  cpu_period: 0,
  cpu_quota: 0,
  cpu_shares: 0,
  memory_limit_in_bytes: 0,
  memory_swap_limit_in_bytes: 0,
};

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
