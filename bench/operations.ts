import type { Call } from './client/connection.ts';
import { running } from './containerd/stored-node.ts';
import { bytes, integer } from './protobuf.ts';

/** Which containerd stands behind the shim: one without pods, or one with 500 containers. */
export type BackendName = 'empty' | 'full';

/** A call that is measured. */
export interface Operation {
  readonly name: string;
  readonly backend: BackendName;
  readonly call: Call;
  /**
   * How the answer through the shim compares with the direct one: `as long` (not the same bytes, since Go
   * writes maps in any order), or `longer`: else what is measured is no amendment.
   */
  readonly answer: 'as long' | 'longer';
}

/** A call of CRI's RuntimeService. */
export function runtimeCall(method: string, ...fields: readonly Buffer[]): Call {
  return { path: `/runtime.v1.RuntimeService/${method}`, request: Buffer.concat(fields) };
}

/** As kubelet calls it. */
export const version = runtimeCall('Version', bytes(1, '0.1.0'));

export const operations: readonly Operation[] = [
  { name: 'Version', backend: 'empty', call: version, answer: 'as long' },
  { name: 'Status verbose', backend: 'empty', call: runtimeCall('Status', integer(1, 1)), answer: 'as long' },
  { name: 'ListContainers 0', backend: 'empty', call: runtimeCall('ListContainers'), answer: 'as long' },
  { name: 'ListContainers 500', backend: 'full', call: runtimeCall('ListContainers'), answer: 'as long' },
  {
    name: 'ContainerStatus amended',
    backend: 'full',
    call: runtimeCall('ContainerStatus', bytes(1, running.id)),
    answer: 'longer',
  },
  // For information: ends in our own gRPC server, which asks the backend again.
  { name: 'RuntimeConfig handled', backend: 'empty', call: runtimeCall('RuntimeConfig'), answer: 'as long' },
];
