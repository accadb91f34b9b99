import type { Long, MessageTypeDefinition } from '@grpc/proto-loader';
import type { ProtoGrpcType } from '#protos/resize.js';
import { encodeMessage, messageTypes } from '../../core/index.ts';
import type { Decoded } from '../../runtime/index.ts';
import resize from './resize.proto.json' with { type: 'json' };

type Proto = ProtoGrpcType['criresize']['v1alpha1'];

type Generated<Name extends keyof Proto> =
  Proto[Name] extends MessageTypeDefinition<infer _, infer Output> ? Output : never;

/**
 * The requests of proto/criresize/v1alpha1/resize.proto as plain objects, generated from it. Field names are those of
 * the proto (snake case), enum values are their names, and int64 is bigint. After decoding every field is present; a
 * sub-message that was not sent is null.
 */
export type Requests = {
  [Name in keyof Proto as Name extends `${string}Request` ? Name : never]: Decoded<Generated<Name>>;
};

/** Fields that the shim, or an older shim, may omit. */
type Optional =
  | 'after'
  | 'actuated'
  | 'allocated'
  | 'before'
  | 'changed'
  | 'changes'
  | 'count'
  | 'cpu_time'
  | 'created'
  | 'declared'
  | 'desired'
  | 'history'
  | 'kubelet'
  | 'last_error'
  | 'last_resize'
  | 'next_try'
  | 'requester'
  | 'rolled_back'
  | 'since'
  | 'unreadable'
  | 'warning';

/** A pod that cannot be read has no values. */
type OptionalOf<T> = Optional | (T extends { identity: unknown } ? 'values' : never);

type Sent<T> = T extends Long
  ? number
  : T extends (infer Item)[]
    ? Sent<Item>[]
    : T extends object
      ? { [Key in keyof T as Key extends OptionalOf<T> ? never : Key]: Sent<NonNullable<T[Key]>> } & {
          [Key in keyof T as Key extends OptionalOf<T> ? Key : never]?: Sent<NonNullable<T[Key]>>;
        }
      : T;

/** The messages that the shim sends. A sub-message that was not sent is absent. */
export type Messages = { [Name in keyof Proto]: Sent<Generated<Name>> };
export type State = Messages['Resize']['state'];
/** A google.protobuf.Duration or Timestamp. */
export type Span = Messages['Step']['took'];

export const PACKAGE = 'criresize.v1alpha1';

const typeOf = messageTypes(resize, PACKAGE);

/** Encodes a message. Absent fields are not sent. */
export function encode(name: keyof Messages, message: object): Buffer {
  return encodeMessage(typeOf(name), message);
}

/** Decodes a request. Skips unknown fields. Throws if the bytes are not such a message. */
export const decodeRequest = <Name extends keyof Requests>(name: Name, bytes: Uint8Array): Requests[Name] =>
  decode(name, bytes, BigInt) as unknown as Requests[Name];

/** Decodes a message that the shim has sent. */
export const decodeResponse = <Name extends keyof Messages>(name: Name, bytes: Uint8Array): Messages[Name] =>
  withoutNulls(decode(name, bytes, Number)) as Messages[Name];

function decode(name: string, bytes: Uint8Array, longs: typeof BigInt | typeof Number): Record<string, unknown> {
  const type = typeOf(name);
  const options = { longs, enums: String, defaults: true, arrays: true, objects: true };
  return type.toObject(type.decode(bytes), options);
}

function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls);
  if (typeof value !== 'object' || value === null) return value;
  const fields = Object.entries(value).filter(([, field]) => field !== null);
  return Object.fromEntries(fields.map(([name, field]) => [name, withoutNulls(field)]));
}
