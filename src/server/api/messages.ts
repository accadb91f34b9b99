import protobuf from 'protobufjs/light.js';
import { encodeMessage } from '../../core/index.ts';
import resize from './resize.proto.json' with { type: 'json' };

/**
 * The messages of proto/criresize/v1alpha1 as plain objects. Field names are those of the .proto file (snake case),
 * enum values are their names. In decoded requests every field is present: absent sub-messages are null.
 */

export interface WireAmounts {
  cpu: string;
  memory: string;
}

export interface WireResources {
  limits: WireAmounts | null;
  requests: WireAmounts | null;
}

export interface WirePodRef {
  /** The name of the field that is set. */
  ref?: 'sandbox_id' | 'uid' | 'name';
  sandbox_id?: string;
  uid?: string;
  name?: { namespace: string; name: string } | null;
}

/** google.protobuf.Duration and Timestamp. */
export interface WireTime {
  seconds: bigint;
  nanos: number;
}

export interface Requests {
  ResizePodRequest: {
    pod: WirePodRef | null;
    resources: WireResources | null;
    containers: Record<string, WireResources>;
    volumes: Record<string, string>;
    dry_run: boolean;
    defer: boolean;
    timeout: WireTime | null;
  };
  GetPodRequest: { pod: WirePodRef | null };
  ListPodsRequest: object;
  WatchResizesRequest: { pod: WirePodRef | null; history: boolean };
  GetResizeRequest: { id: string };
  CancelResizeRequest: { id: string };
}

export type WireState =
  | 'STATE_UNSPECIFIED'
  | 'PROPOSED'
  | 'IN_PROGRESS'
  | 'DEFERRED'
  | 'INFEASIBLE'
  | 'COMPLETED'
  | 'CANCELED';

/** A Duration or Timestamp to be sent. Its seconds fit in a number. */
export interface WireSpan {
  seconds: number;
  nanos: number;
}

export interface WirePodIdentity {
  sandbox_id: string;
  uid: string;
  namespace: string;
  name: string;
}

export interface WireStep {
  kind: string;
  target: string;
  text: string;
  at: WireSpan;
  took: WireSpan;
}

export interface WireValues {
  limits: WireAmounts;
  requests: WireAmounts;
  cpu_max: string;
  memory_max: string;
  cpu_shares: number;
  cpu_weight: number;
  memory_used_bytes: number;
  /** The rest is absent from values that were not read from a cgroup, and where the kernel does not tell. */
  memory_unreclaimable_bytes?: number;
  cpu_time?: WireSpan;
  memory_stalled_percent?: number;
  cpu_stalled_percent?: number;
}

export interface WirePodValues {
  pod: WireValues;
  containers: { id: string; name: string; values: WireValues }[];
  volumes: {
    name: string;
    size_bytes: number;
    used_bytes: number;
    policy: string;
    warning?: string;
    last_error?: WireReason;
  }[];
}

export interface WireReason {
  reason: string;
  message: string;
}

/** Who asked for a resize. */
export interface WireRequester {
  kind: 'KIND_UNSPECIFIED' | 'KUBELET' | 'CRI_CLIENT' | 'API' | 'ANNOTATION' | 'SHIM';
  process: string;
  pid: number;
}

/** The change of one value. */
export interface WireChange {
  value: string;
  from: string;
  to: string;
}

/** A resize in the history of a pod. An older shim sends the first fields only. */
export interface WireSummary extends WireReason {
  id: string;
  state: WireState;
  requester?: WireRequester;
  changes?: WireChange[];
  rolled_back?: boolean;
  created?: WireSpan;
  changed?: WireSpan;
  count?: number;
}

export interface WireResize extends WireReason {
  id: string;
  pod: WirePodIdentity;
  state: WireState;
  steps: WireStep[];
  before?: WirePodValues;
  after?: WirePodValues;
  created: WireSpan;
  changed: WireSpan;
  tries: number;
  next_try?: WireSpan;
  /** Absent from a dry run, and from an older shim. */
  requester?: WireRequester;
  changes?: WireChange[];
  rolled_back?: boolean;
}

export interface WirePod {
  identity: WirePodIdentity;
  values?: WirePodValues;
  last_resize?: WireSummary;
  /** Absent from an older shim. */
  history?: WireSummary[];
  last_error?: WireReason;
  unreadable?: WireReason;
  desired?: WirePodValues;
  allocated?: WirePodValues;
  actuated?: WirePodValues;
  kubelet?: {
    values: WirePodValues;
    state?: WireState;
    reason?: string;
    message?: string;
    since?: WireSpan;
    reclaimed_bytes?: number;
  };
  declared?: WireDeclaredPod;
}

export interface WireDeclaredPod {
  source: string;
  containers: { name: string; kind: string; state: string; limits?: WireAmounts }[];
}

export interface Responses {
  ResizePodResponse: { resize: WireResize };
  GetPodResponse: { pod: WirePod };
  ListPodsResponse: { pods: WirePod[] };
  ResizeEvent: {
    resize_id: string;
    pod: WirePodIdentity;
    time: WireSpan;
    requester?: WireRequester;
    state?: WireReason & { state: WireState; changes?: WireChange[]; rolled_back?: boolean; count?: number };
    step?: WireStep;
  };
  GetResizeResponse: { resize: WireResize };
  CancelResizeResponse: { resize: WireResize };
}

export const PACKAGE = 'criresize.v1alpha1';

const types = new Map<string, protobuf.Type>();
/** The types of proto/criresize/v1alpha1/resize.proto, parsed in advance (test/docs/parsed-protos.test.ts). */
let root: protobuf.Root | undefined;

function typeOf(name: string): protobuf.Type {
  root ??= protobuf.Root.fromJSON(resize);
  let type = types.get(name);
  if (type === undefined) {
    type = root.lookupType(`${PACKAGE}.${name}`);
    types.set(name, type);
  }
  return type;
}

/** Encodes a request for a client. Absent fields are not sent. */
export function encodeRequest(name: keyof Requests, message: object): Buffer {
  return encodeMessage(typeOf(name), message);
}

/**
 * Decodes a response for a client. Lists and strings are present even if empty, sub-messages only if they were sent.
 */
export function decodeResponse<Name extends keyof Responses>(name: Name, bytes: Uint8Array): Responses[Name] {
  const type = typeOf(name);
  const options = { longs: Number, enums: String, defaults: true, arrays: true, objects: true };
  return withoutNulls(type.toObject(type.decode(bytes), options)) as Responses[Name];
}

function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls);
  if (typeof value !== 'object' || value === null) return value;
  const fields = Object.entries(value).filter(([, field]) => field !== null);
  return Object.fromEntries(fields.map(([name, field]) => [name, withoutNulls(field)]));
}

/** Decodes a request. Unknown fields are skipped. Throws if the bytes are not such a message. */
export function decodeRequest<Name extends keyof Requests>(name: Name, bytes: Uint8Array): Requests[Name] {
  const type = typeOf(name);
  const options = { longs: BigInt, enums: String, defaults: true, arrays: true, objects: true, oneofs: true };
  return type.toObject(type.decode(bytes), options) as Requests[Name];
}

/** Encodes a response. */
export function encodeResponse<Name extends keyof Responses>(name: Name, message: Responses[Name]): Buffer {
  return encodeMessage(typeOf(name), message);
}
