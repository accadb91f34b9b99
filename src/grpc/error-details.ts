import { Reader, Writer } from 'protobufjs/minimal.js';

export const ERROR_DOMAIN = 'cri-resize-shim.io';
const ERROR_INFO_TYPE = 'type.googleapis.com/google.rpc.ErrorInfo';

export interface ErrorInfo {
  readonly reason: string;
  readonly metadata: Readonly<Record<string, string>>;
}

/**
 * Encodes a google.rpc.Status with one google.rpc.ErrorInfo for the trailer grpc-status-details-bin. Written field by
 * field, with the numbers of proto/google/rpc: the two messages never change, so a parser at start would not be worth
 * its cost.
 */
export function encodeStatusDetails(code: number, message: string, info: ErrorInfo): Buffer {
  const detail = Writer.create()
    .uint32(lengthDelimited(1))
    .string(info.reason)
    .uint32(lengthDelimited(2))
    .string(ERROR_DOMAIN);
  for (const [key, value] of Object.entries(info.metadata)) {
    detail.uint32(lengthDelimited(3)).fork();
    detail.uint32(lengthDelimited(1)).string(key).uint32(lengthDelimited(2)).string(value).ldelim();
  }
  const status = Writer.create().uint32(varint(1)).int32(code).uint32(lengthDelimited(2)).string(message);
  status.uint32(lengthDelimited(3)).fork();
  status.uint32(lengthDelimited(1)).string(ERROR_INFO_TYPE).uint32(lengthDelimited(2)).bytes(detail.finish()).ldelim();
  return Buffer.from(status.finish());
}

/** Decodes the ErrorInfo in a grpc-status-details-bin. Returns undefined if there is none. */
export function decodeStatusDetails(details: Uint8Array): ErrorInfo | undefined {
  try {
    const any = fieldsOf(details).get(3)?.at(0);
    const info = any === undefined ? undefined : fieldsOf(any).get(2)?.at(0);
    if (info === undefined) return undefined;
    const fields = fieldsOf(info);
    const pairs = (fields.get(3) ?? []).map(fieldsOf).map((pair) => [text(pair.get(1)), text(pair.get(2))] as const);
    return { reason: text(fields.get(1)), metadata: Object.fromEntries(pairs) };
  } catch {
    return undefined;
  }
}

/** Returns a message's length-delimited fields by number. Throws if the bytes are not a message. */
function fieldsOf(message: Uint8Array): ReadonlyMap<number, readonly Uint8Array[]> {
  const reader = Reader.create(message);
  const fields = new Map<number, Uint8Array[]>();
  while (reader.pos < reader.len) {
    const tag = reader.uint32();
    if ((tag & 7) !== 2) reader.skipType(tag & 7);
    else fields.set(tag >>> 3, [...(fields.get(tag >>> 3) ?? []), reader.bytes()]);
  }
  return fields;
}

const text = (values: readonly Uint8Array[] | undefined): string => Buffer.from(values?.at(0) ?? []).toString('utf8');
const varint = (field: number): number => field << 3;
const lengthDelimited = (field: number): number => (field << 3) | 2;
