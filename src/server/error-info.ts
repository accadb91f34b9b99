import { Writer } from 'protobufjs/minimal.js';

export const ERROR_DOMAIN = 'cri-resize-shim.io';
const ERROR_INFO_TYPE = 'type.googleapis.com/google.rpc.ErrorInfo';

export interface ErrorInfo {
  readonly reason: string;
  readonly metadata: Readonly<Record<string, string>>;
}

/**
 * A google.rpc.Status with one google.rpc.ErrorInfo, as bytes for the trailer grpc-status-details-bin. Written field by
 * field (numbers are those of proto/google/rpc): two messages that never change are not worth a parser at start.
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

const varint = (field: number): number => field << 3;
const lengthDelimited = (field: number): number => (field << 3) | 2;
