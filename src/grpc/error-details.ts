import {
  contentsOf,
  createWriter,
  delimitedKey,
  textOf,
  varintKey,
  writeMapEntry,
  writeString,
} from '../core/protobuf/index.ts';

export const ERROR_DOMAIN = 'cri-resize-shim.io';
const ERROR_INFO_TYPE = 'type.googleapis.com/google.rpc.ErrorInfo';

export interface ErrorInfo {
  readonly reason: string;
  readonly metadata: Readonly<Record<string, string>>;
}

// Field numbers, from proto/google/rpc and google/protobuf/any.proto.
const STATUS = { code: 1, message: 2, details: 3 } as const;
const ANY = { typeUrl: 1, value: 2 } as const;
const INFO = { reason: 1, domain: 2, metadata: 3 } as const;

/** Encodes a google.rpc.Status with one google.rpc.ErrorInfo, for the trailer grpc-status-details-bin. */
export function encodeStatusDetails(code: number, message: string, info: ErrorInfo): Buffer {
  const detail = writeString(createWriter(), INFO.reason, info.reason);
  writeString(detail, INFO.domain, ERROR_DOMAIN);
  for (const [key, value] of Object.entries(info.metadata)) writeMapEntry(detail, INFO.metadata, key, value);
  const status = createWriter().uint32(varintKey(STATUS.code)).int32(code);
  writeString(status, STATUS.message, message);
  writeString(status.uint32(delimitedKey(STATUS.details)).fork(), ANY.typeUrl, ERROR_INFO_TYPE);
  status.uint32(delimitedKey(ANY.value)).bytes(detail.finish()).ldelim();
  return Buffer.from(status.finish());
}

/** Decodes the ErrorInfo of such a status; undefined if there is none, because another sender has written the trailer. */
export function decodeStatusDetails(details: Uint8Array): ErrorInfo | undefined {
  try {
    const [any] = contentsOf(details, STATUS.details);
    const [info] = any === undefined ? [] : contentsOf(any, ANY.value);
    if (info === undefined) return undefined;
    const textIn = (message: Uint8Array, field: number): string => textOf(contentsOf(message, field)[0]);
    const pairs = contentsOf(info, INFO.metadata).map((entry) => [textIn(entry, 1), textIn(entry, 2)] as const);
    return { reason: textIn(info, INFO.reason), metadata: Object.fromEntries(pairs) };
  } catch {
    return undefined;
  }
}
