/** gRPC as all sides of the shim use it: status codes, metadata, errors of calls, the prefix of a message. */

/** gRPC status codes, by their numbers on the wire (statuscodes.md of grpc). */
export const Code = {
  OK: 0,
  CANCELLED: 1,
  UNKNOWN: 2,
  INVALID_ARGUMENT: 3,
  DEADLINE_EXCEEDED: 4,
  NOT_FOUND: 5,
  ALREADY_EXISTS: 6,
  PERMISSION_DENIED: 7,
  RESOURCE_EXHAUSTED: 8,
  FAILED_PRECONDITION: 9,
  ABORTED: 10,
  OUT_OF_RANGE: 11,
  UNIMPLEMENTED: 12,
  INTERNAL: 13,
  UNAVAILABLE: 14,
  DATA_LOSS: 15,
  UNAUTHENTICATED: 16,
} as const;
export type Code = (typeof Code)[keyof typeof Code];

const names = Object.keys(Code);

/** Returns the name of a status code; its number if it is unknown. */
export const grpcCodeName = (code: number): string => names[code] ?? String(code);

/** The characters of a name, and of a value that is text (PROTOCOL-HTTP2.md of grpc, Header-Name and ASCII-Value). */
const NAME = /^[0-9a-z_.-]+$/;
const TEXT = /^[ -~]*$/;

export type MetadataValue = string | Buffer;

const isBinary = (name: string): boolean => name.endsWith('-bin');

/**
 * The metadata of a call: names in lower case and their values, in the order of the header fields that carry them. A
 * name may be repeated. The values of a name that ends in `-bin` are bytes, which header fields carry in base64. All
 * others are printable ASCII.
 */
export class Metadata {
  /** As received: a short field of bytes may have thousands of values, and each would be sent with its name. */
  readonly #fields: (readonly [name: string, text: string])[] = [];

  /** Returns the metadata of header fields in the form of node:http2 and of grpc-js's `toHttp2Headers`. */
  static ofHeaders(headers: Readonly<Record<string, number | string | readonly string[] | undefined>>): Metadata {
    const metadata = new Metadata();
    for (const [name, values = []] of Object.entries(headers))
      for (const value of [values].flat()) metadata.add(name, String(value));
    return metadata;
  }

  /** Adds a header field. Returns false and adds nothing if gRPC does not allow the name or the value. */
  add(name: string, text: string): boolean {
    if (!NAME.test(name) || !TEXT.test(text)) return false;
    this.#fields.push([name, text]);
    return true;
  }

  /** Returns the values of a name. */
  get(name: string): MetadataValue[] {
    return this.#fields.filter(([other]) => other === name).flatMap(([, text]) => valuesIn(name, text));
  }

  /** Returns names and values in order. */
  pairs(): readonly (readonly [name: string, value: MetadataValue])[] {
    return this.#fields.flatMap(([name, text]) => valuesIn(name, text).map((value) => [name, value] as const));
  }

  /** Returns the header fields that carry it, as received. */
  fields(): readonly (readonly [name: string, text: string])[] {
    return this.#fields;
  }
}

/** Returns the values of a header field: several values share a field of bytes, separated by commas. */
const valuesIn = (name: string, text: string): MetadataValue[] =>
  isBinary(name) ? text.split(',').map((one) => Buffer.from(one.trim(), 'base64')) : [text];

/** The error of a failed gRPC call. */
export interface ServiceError extends Error {
  /** The status code. */
  readonly code: number;
  /** The status message. */
  readonly details: string;
  /** The trailers. */
  readonly metadata: Metadata;
}

/** Whether this is the error of a failed gRPC call. */
export function isServiceError(error: unknown): error is ServiceError {
  return (
    error instanceof Error &&
    'code' in error &&
    typeof error.code === 'number' &&
    'details' in error &&
    typeof error.details === 'string' &&
    'metadata' in error
  );
}

/** Bytes before a gRPC message: compressed flag and length (gRPC over HTTP/2, Length-Prefixed-Message). */
export const MESSAGE_PREFIX_SIZE = 5;

/** Returns the prefix of an uncompressed message of this many bytes. */
export function messagePrefix(length: number): Buffer {
  const prefix = Buffer.allocUnsafe(MESSAGE_PREFIX_SIZE);
  writeMessagePrefix(prefix, 0, length);
  return prefix;
}

/** Writes the prefix of an uncompressed message of this many bytes into `bytes` at this offset. */
export function writeMessagePrefix(bytes: Buffer, offset: number, length: number): void {
  bytes.writeUInt8(0, offset);
  bytes.writeUInt32BE(length, offset + 1);
}

/** The process of a client, as far as known. Only informative: a process chooses its own name. */
export interface ClientProcess {
  readonly pid: number;
  /** At most 15 characters; undefined if it cannot be read. */
  readonly name: string | undefined;
}
