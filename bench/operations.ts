import type { Call, ClientKind } from './client/client.ts';
import { running } from './containerd/stored-node.ts';
import { bytes, integer, message } from './protobuf.ts';

/**
 * The backend of the shim: a containerd without pods, one with 500 containers, or a fake with 500 containers that
 * builds its answer like a runtime (bench/fake).
 */
export type BackendName = 'empty' | 'full' | 'fake';

/** A call that is measured. */
export interface Operation {
  readonly name: string;
  readonly backend: BackendName;
  readonly client: ClientKind;
  readonly call: Call;
  /**
   * How the answer through the shim compares with the direct one: `as long` (not the same bytes, because Go writes maps
   * in any order) or `longer`. Otherwise the call measures no amendment.
   */
  readonly answer: 'as long' | 'longer';
  /** Not part of the load under which memory is measured. */
  readonly forInformation?: true;
}

/** A call of CRI's RuntimeService. */
export function runtimeCall(method: string, ...fields: readonly Buffer[]): Call {
  return { path: `/runtime.v1.RuntimeService/${method}`, request: Buffer.concat(fields) };
}

/** As kubelet calls it. */
export const version = runtimeCall('Version', bytes(1, '0.1.0'));

/** A filter with an ID that no container has. */
const none = message(1, bytes(1, 'none'));

const calls: readonly Omit<Operation, 'client'>[] = [
  { name: 'Version', backend: 'empty', call: version, answer: 'as long' },
  { name: 'Status verbose', backend: 'empty', call: runtimeCall('Status', integer(1, 1)), answer: 'longer' },
  { name: 'ListContainers 0', backend: 'fake', call: runtimeCall('ListContainers', none), answer: 'as long' },
  { name: 'ListContainers 500', backend: 'fake', call: runtimeCall('ListContainers'), answer: 'as long' },
  { name: 'ListContainers 500 of containerd', backend: 'full', call: runtimeCall('ListContainers'), answer: 'as long' },
  {
    name: 'ContainerStatus amended',
    backend: 'full',
    call: runtimeCall('ContainerStatus', bytes(1, running.id)),
    answer: 'longer',
  },
];

/** The operations with a limit are measured again with a client that hides nothing. */
const bare = new Set(['Version', 'ListContainers 500 of containerd', 'ContainerStatus amended']);

/**
 * These calls end in our own gRPC server, which calls the backend. They are rare, and not sixteen at a time. Measured
 * for information, and last, because their memory is reported separately.
 */
const handled = {
  name: 'RuntimeConfig handled',
  backend: 'empty',
  call: runtimeCall('RuntimeConfig'),
  answer: 'as long',
} as const;

export const operations: readonly Operation[] = [
  ...calls.map((call) => ({ ...call, client: 'grpc-js' as const })),
  ...calls
    .filter(({ name }) => bare.has(name))
    .map((call) => ({ ...call, name: `${call.name}, bare frames`, client: 'frames' as const })),
  { ...handled, client: 'grpc-js', forInformation: true },
];
