import { setImmediate as nextTurn } from 'node:timers/promises';
import protobuf from 'protobufjs/light.js';
import { messageOf } from '../core/errors/index.ts';
import { encodeMessage } from '../core/protobuf/index.ts';
import { KiB } from '../core/quantities/index.ts';
import cri from './cri.proto.json' with { type: 'json' };

/**
 * The CRI messages that the shim reads, as plain objects. Field names are those of the proto (snake case), int64 is bigint.
 * After decoding every field is present, with proto3's default if it was not on the wire.
 */

export interface LinuxContainerResources {
  cpu_period: bigint;
  cpu_quota: bigint;
  cpu_shares: bigint;
  memory_limit_in_bytes: bigint;
  oom_score_adj: bigint;
  cpuset_cpus: string;
  cpuset_mems: string;
  hugepage_limits: { page_size: string; limit: bigint }[];
  unified: Record<string, string>;
  memory_swap_limit_in_bytes: bigint;
}

export interface Metadata {
  name: string;
  uid: string;
  namespace: string;
  /** How many sandboxes the pod has had before this one. */
  attempt?: number;
}

export const ContainerState = { CREATED: 0, RUNNING: 1, EXITED: 2, UNKNOWN: 3 } as const;
export const SandboxState = { READY: 0, NOTREADY: 1 } as const;
export const CgroupDriverName = { SYSTEMD: 0, CGROUPFS: 1 } as const;

export interface ContainerStatus {
  id: string;
  metadata: { name: string } | null;
  state: number;
  created_at: bigint;
  finished_at: bigint;
  exit_code: number;
  labels: Record<string, string>;
  annotations: Record<string, string>;
  resources: { linux: LinuxContainerResources | null } | null;
}

/** A sub-message that was not on the wire is null. */
export interface Messages {
  LinuxContainerResources: LinuxContainerResources;
  UpdateContainerResourcesRequest: {
    container_id: string;
    linux: LinuxContainerResources | null;
    windows: object | null;
    annotations: Record<string, string>;
  };
  UpdateContainerResourcesResponse: object;
  UpdatePodSandboxResourcesRequest: {
    pod_sandbox_id: string;
    overhead: LinuxContainerResources | null;
    resources: LinuxContainerResources | null;
  };
  UpdatePodSandboxResourcesResponse: object;
  RunPodSandboxRequest: {
    config: {
      metadata: Metadata | null;
      annotations: Record<string, string>;
      linux: {
        cgroup_parent: string;
        overhead: LinuxContainerResources | null;
        resources: LinuxContainerResources | null;
      } | null;
    } | null;
  };
  RunPodSandboxResponse: { pod_sandbox_id: string };
  RestorePodResponse: { pod_sandbox_id: string };
  RemovePodSandboxRequest: { pod_sandbox_id: string };
  PodSandboxStatusRequest: { pod_sandbox_id: string; verbose: boolean };
  PodSandboxStatusResponse: {
    status: { id: string; metadata: Metadata | null; state: number } | null;
    info: Record<string, string>;
    containers_statuses: ContainerStatus[];
  };
  PodSandboxStatsRequest: { pod_sandbox_id: string };
  ListContainerStatsRequest: { filter: { pod_sandbox_id: string } | null };
  ListPodSandboxRequest: object;
  ListPodSandboxResponse: { items: { id: string; state: number }[] };
  CreateContainerRequest: {
    pod_sandbox_id: string;
    config: { metadata: { name: string } | null; linux: { resources: LinuxContainerResources | null } | null } | null;
  };
  CreateContainerResponse: { container_id: string };
  StartContainerRequest: { container_id: string };
  RemoveContainerRequest: { container_id: string };
  ListContainersRequest: { filter: { pod_sandbox_id: string } | null };
  ListContainersResponse: {
    containers: {
      id: string;
      pod_sandbox_id: string;
      metadata: { name: string } | null;
      state: number;
      /** Nanoseconds since 1970. */
      created_at: bigint;
      labels: Record<string, string>;
      annotations: Record<string, string>;
    }[];
  };
  ContainerStatusRequest: { container_id: string; verbose: boolean };
  ContainerStatusResponse: {
    status: ContainerStatus | null;
    info: Record<string, string>;
  };
  ContainerEventResponse: { container_id: string; containers_statuses: ContainerStatus[] };
  VersionRequest: { version: string };
  VersionResponse: { runtime_name: string; runtime_version: string };
  StatusRequest: { verbose: boolean };
  StatusResponse: { info: Record<string, string> };
  RuntimeConfigRequest: object;
  RuntimeConfigResponse: { linux: { cgroup_driver: number } | null };
}

/** The input of {@link encode}. As in proto3, absent fields and defaults (0, "") are not written. */
export type Partially<T> = T extends (infer Item)[]
  ? Partially<Item>[]
  : T extends object
    ? { [Key in keyof T]?: Partially<T[Key]> }
    : T;

const types = new Map<string, protobuf.Type>();
/** proto/runtime/v1/cri.proto, parsed when it was last changed, because parsing it at each start takes longer than all decoding. */
let root: protobuf.Root | undefined;

function typeOf(name: string): protobuf.Type {
  root ??= protobuf.Root.fromJSON(cri);
  let type = types.get(name);
  if (type === undefined) {
    type = root.lookupType(`runtime.v1.${name}`);
    types.set(name, type);
  }
  return type;
}

/** Decodes a CRI message and skips unknown fields. Throws RangeError if the bytes are not such a message. */
export function decode<Name extends keyof Messages>(name: Name, bytes: Uint8Array): Messages[Name] {
  const type = typeOf(name);
  return type.toObject(read(type, bytes), {
    longs: BigInt,
    defaults: true,
    arrays: true,
    objects: true,
  }) as Messages[Name];
}

/** The lists of all that the node has. */
type List = 'ListPodSandboxResponse' | 'ListContainersResponse';

/** Bytes of a list that are decoded in one turn of the event loop: about 1 ms. */
const PORTION = 32 * KiB;

/**
 * Decodes a list as {@link decode} does, a portion in each turn of the event loop: on a node with many pods, all of it takes many
 * milliseconds. A message of repeated fields is the concatenation of messages with parts of them. Rejects as {@link decode} throws.
 */
export async function decodeList<Name extends List>(name: Name, bytes: Uint8Array): Promise<Messages[Name]> {
  const all: Record<string, unknown[]> = {};
  for (const [index, portion] of portionsOf(bytes).entries()) {
    if (index > 0) await nextTurn();
    for (const [field, items] of Object.entries(decode(name, portion) as Readonly<Record<string, unknown[]>>))
      (all[field] ??= []).push(...items);
  }
  return all as unknown as Messages[Name];
}

/** Splits a message between its fields. One that is none is returned as a whole. */
function portionsOf(bytes: Uint8Array): readonly Uint8Array[] {
  if (bytes.length <= PORTION) return [bytes];
  const portions: Uint8Array[] = [];
  const reader = protobuf.Reader.create(bytes);
  let begin = 0;
  try {
    while (reader.pos < reader.len) {
      reader.skipType(reader.uint32() & 7);
      if (reader.pos - begin < PORTION && reader.pos < reader.len) continue;
      portions.push(bytes.subarray(begin, reader.pos));
      begin = reader.pos;
    }
  } catch {
    return [bytes];
  }
  return portions;
}

function read(type: protobuf.Type, bytes: Uint8Array): protobuf.Message {
  try {
    return type.decode(bytes);
  } catch (error) {
    // protobufjs throws errors of several classes: a string that is not UTF-8 is a TypeError.
    throw new RangeError(`not a ${type.name}: ${messageOf(error)}`, { cause: error });
  }
}

/** Encodes a CRI message. */
export function encode<Name extends keyof Messages>(name: Name, message: Partially<Messages[Name]>): Buffer {
  return encodeMessage(typeOf(name), message);
}
