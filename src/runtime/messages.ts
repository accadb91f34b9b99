import type { Long, MessageTypeDefinition } from '@grpc/proto-loader';
import type { ProtoGrpcType } from '#protos/cri.js';
import type { CgroupDriver } from '#protos/runtime/v1/CgroupDriver.js';
import type { ContainerState as GeneratedContainerState } from '#protos/runtime/v1/ContainerState.js';
import type { PodSandboxState } from '#protos/runtime/v1/PodSandboxState.js';

/** Values of the enums of proto/runtime/v1/cri.proto. */
export const ContainerState: typeof GeneratedContainerState = {
  CONTAINER_CREATED: 0,
  CONTAINER_RUNNING: 1,
  CONTAINER_EXITED: 2,
  CONTAINER_UNKNOWN: 3,
};
export const SandboxState: typeof PodSandboxState = { SANDBOX_READY: 0, SANDBOX_NOTREADY: 1 };
export const CgroupDriverName: typeof CgroupDriver = { SYSTEMD: 0, CGROUPFS: 1 };

type Proto = ProtoGrpcType['runtime']['v1'];

/** A decoded message: int64 is bigint. Enums of CRI are numbers, since a later version may have further values. */
export type Decoded<T> = T extends Long
  ? bigint
  : T extends number
    ? number
    : T extends (infer Item)[]
      ? Decoded<Item>[]
      : T extends object
        ? { [Key in keyof T]: Decoded<T[Key]> }
        : T;

/**
 * The messages of proto/runtime/v1/cri.proto as plain objects, generated from it. Field names are those of the proto
 * (snake case). After decoding every field is present: proto3's default, or null for a sub-message, if it was not on
 * the wire.
 */
export type Messages = {
  [Name in keyof Proto]: Proto[Name] extends MessageTypeDefinition<infer _, infer Output> ? Decoded<Output> : never;
};
export type LinuxContainerResources = Messages['LinuxContainerResources'];

/** The input of `encode` (codec.ts). As in proto3, absent fields and defaults (0, "") are not written. */
export type Partially<T> = T extends (infer Item)[]
  ? Partially<Item>[]
  : T extends object
    ? { [Key in keyof T]?: Partially<T[Key]> }
    : T;
