import type { Call, ClientKind } from './client/client.ts';
import { running } from './containerd/stored-node.ts';
import { bytes, integer } from './protobuf.ts';

/**
 * The backend of the shim: a containerd without pods, one with 500 containers, or a fake with 500 containers that
 * builds its answer like a runtime (bench/fake).
 */
export type BackendName = 'empty' | 'full' | 'fake';

/** A call that is measured. */
export interface Operation {
  readonly name: string;
  readonly backend: BackendName;
  /** `kubelet`: grpc-go, or bare frames without Go. */
  readonly clients: readonly (ClientKind | 'kubelet')[];
  readonly inFlight: readonly number[];
  readonly call: Call;
  /**
   * How the answer through the shim compares with the direct one: `as long` (not the same bytes, because Go writes maps
   * in any order) or `longer`. Otherwise the call measures no amendment.
   */
  readonly answer: 'as long' | 'longer';
  /** On a new connection for each call. */
  readonly connects?: true;
}

/** A call of CRI's RuntimeService. */
export function runtimeCall(method: string, ...fields: readonly Buffer[]): Call {
  return { path: `/runtime.v1.RuntimeService/${method}`, request: Buffer.concat(fields) };
}

/** As kubelet calls it. */
export const version = runtimeCall('Version', bytes(1, '0.1.0'));

const few = [1, 16];
const onlyKubelet = ['kubelet'] as const;
const withFrames = ['kubelet', 'frames'] as const;

export const operations: readonly Operation[] = [
  { name: 'Version', backend: 'empty', clients: withFrames, inFlight: few, call: version, answer: 'as long' },
  {
    name: 'ListContainers, empty',
    backend: 'empty',
    clients: onlyKubelet,
    inFlight: few,
    call: runtimeCall('ListContainers'),
    answer: 'as long',
  },
  {
    name: 'ListImages, empty',
    backend: 'empty',
    clients: onlyKubelet,
    inFlight: few,
    call: { path: '/runtime.v1.ImageService/ListImages', request: Buffer.alloc(0) },
    answer: 'as long',
  },
  {
    name: 'Status verbose, amended',
    backend: 'empty',
    clients: withFrames,
    inFlight: few,
    call: runtimeCall('Status', integer(1, 1)),
    answer: 'longer',
  },
  {
    name: 'ContainerStatus, amended',
    backend: 'full',
    clients: withFrames,
    inFlight: few,
    call: runtimeCall('ContainerStatus', bytes(1, running.id)),
    answer: 'longer',
  },
  {
    // Served by the shim's own gRPC server, which calls the backend. kubelet makes this call once, at its start.
    name: 'RuntimeConfig, handled',
    backend: 'empty',
    clients: ['kubelet', 'grpc-js'],
    inFlight: few,
    call: runtimeCall('RuntimeConfig'),
    answer: 'as long',
  },
  {
    name: 'New connection and one Version',
    backend: 'empty',
    clients: onlyKubelet,
    inFlight: [1],
    call: version,
    answer: 'as long',
    connects: true,
  },
  {
    name: 'ListContainers, 500',
    backend: 'full',
    clients: onlyKubelet,
    inFlight: few,
    call: runtimeCall('ListContainers'),
    answer: 'as long',
  },
  {
    name: 'ListContainers, 500 of the fake',
    backend: 'fake',
    clients: ['grpc-js'],
    inFlight: [1],
    call: runtimeCall('ListContainers'),
    answer: 'as long',
  },
];
