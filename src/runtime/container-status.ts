import protobuf from 'protobufjs/minimal.js';
import { spliceInto } from './splice.ts';

/**
 * ContainerStatusResponse, read and changed where it lies. kubelet asks for the status of every container all the time,
 * and making objects of a whole message, of which the shim reads seven fields, cost more than all else it did for it.
 */

/** The limits in a container's status, by their names on the wire. 0: not given. Past 2^53 not exact to the last digit. */
export interface ReportedResources {
  readonly cpu_period: number;
  readonly cpu_quota: number;
  readonly cpu_shares: number;
  readonly memory_limit_in_bytes: number;
  readonly memory_swap_limit_in_bytes: number;
}

export interface ReportedStatus {
  readonly id: string;
  /** See ContainerState. */
  readonly state: number;
  /** Undefined when the response says nothing about resources. */
  readonly resources: ReportedResources | undefined;
}

/** Field numbers of LinuxContainerResources. */
const NUMBER_OF: Readonly<Record<keyof ReportedResources, number>> = {
  cpu_period: 1,
  cpu_quota: 2,
  cpu_shares: 3,
  memory_limit_in_bytes: 4,
  memory_swap_limit_in_bytes: 10,
};
const NAME_OF = new Map(Object.entries(NUMBER_OF).map(([name, field]) => [field, name as keyof ReportedResources]));

const STATUS = 1;
const ID = 1;
const STATE = 3;
const RESOURCES = 16;
const LINUX = 1;
const VARINT = 0;
const DELIMITED = 2;

type Fields = Partial<Record<keyof ReportedResources, number>>;

/** What the shim reads of a ContainerStatusResponse. Throws when the bytes are no such message. */
export function readContainerStatus(response: Uint8Array): ReportedStatus {
  const status = { id: '', state: 0, resources: undefined as Fields | undefined };
  const reader = protobuf.Reader.create(response);
  eachField(reader, reader.len, (field, type) => {
    if (field !== STATUS || type !== DELIMITED) return false;
    eachField(reader, endOf(reader), (inner, innerType) => readStatusField(reader, inner, innerType, status));
    return true;
  });
  const { id, state, resources } = status;
  return { id, state, resources: resources && { ...nothing, ...resources } };
}

/** The same response with these values in the place of those it has, and every other byte as it was. */
export function withResources(response: Uint8Array, changes: Readonly<Fields>): Buffer {
  const writer = protobuf.Writer.create();
  for (const [name, value] of Object.entries(changes) as [keyof ReportedResources, number][])
    writer.uint32(NUMBER_OF[name] * 8 + VARINT).int64(value);
  return spliceInto(response, [STATUS, RESOURCES, LINUX], writer.finish());
}

const nothing: ReportedResources = {
  cpu_period: 0,
  cpu_quota: 0,
  cpu_shares: 0,
  memory_limit_in_bytes: 0,
  memory_swap_limit_in_bytes: 0,
};

function readStatusField(
  reader: protobuf.Reader,
  field: number,
  type: number,
  status: { id: string; state: number; resources: Fields | undefined },
): boolean {
  if (field === ID && type === DELIMITED) status.id = reader.string();
  else if (field === STATE && type === VARINT) status.state = reader.int32();
  else if (field === RESOURCES && type === DELIMITED)
    eachField(reader, endOf(reader), (inner, innerType) => {
      if (inner !== LINUX || innerType !== DELIMITED) return false;
      const resources = (status.resources ??= {});
      eachField(reader, endOf(reader), (number, numberType) => {
        const name = numberType === VARINT ? NAME_OF.get(number) : undefined;
        if (name === undefined) return false;
        resources[name] = Number(reader.int64());
        return true;
      });
      return true;
    });
  else return false;
  return true;
}

/** Hands over each field up to a place; what is not taken is skipped. */
function eachField(reader: protobuf.Reader, end: number, take: (field: number, type: number) => boolean): void {
  while (reader.pos < end) {
    const tag = reader.uint32();
    if (!take(tag >>> 3, tag & 7)) reader.skipType(tag & 7);
  }
  if (reader.pos > end) throw new RangeError(`no protobuf message: a field ends at ${reader.pos}, past ${end}`);
}

/** Where the sub-message that is about to be read ends. */
function endOf(reader: protobuf.Reader): number {
  const length = reader.uint32();
  return reader.pos + length;
}
