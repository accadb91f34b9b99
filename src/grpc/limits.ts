import { MiB } from '../core/quantities/index.ts';

/** Budgets of one gRPC server of the shim. docs/limits.md lists them. */
export interface ServerLimits {
  /** The longest request, in bytes. */
  readonly requestLimit: number;
  /** Bytes of requests of all clients, from their first byte until their handlers end. */
  readonly requestBytes: number;
  /** Of these, bytes for short requests alone: long ones of one or two clients do not keep those of the others out. */
  readonly shortRequestBytes: number;
  /** Calls whose handlers run, of all clients. */
  readonly runningCalls: number;
}

/** The server for intercepted calls takes the requests that containerd takes: up to 16 MiB. The proxy limits its calls further. */
export const CRI_LIMITS: ServerLimits = {
  requestLimit: 16 * MiB,
  requestBytes: 20 * MiB,
  shortRequestBytes: 2 * MiB,
  runningCalls: 2048,
};

/** The server of the resize API. It takes far longer requests than its 256 KiB, to reject them with their size. Watches are fewer. */
export const API_LIMITS: ServerLimits & { readonly connections: number } = {
  requestLimit: 8 * MiB,
  requestBytes: 10 * MiB,
  shortRequestBytes: MiB,
  runningCalls: 1024,
  connections: 128,
};

/** Budgets of each gRPC server of the shim. */
export const GRPC_LIMITS = {
  /** Streams of one connection. */
  streams: 1024,
  /** The longest request that is short, in bytes. Those of kubelet have some kilobytes. */
  shortRequest: MiB / 16,
  /** What one part of a request (a DATA frame) occupies beyond its bytes. */
  partOverhead: 256,
  /** Ended HTTP/2 sessions whose native part is kept until a full garbage collection: about 25 KB each. */
  keptSessions: 512,
  /** The longest request after decompression. CRI clients do not compress, and a pod cannot start with more. */
  decompressedBytes: 8 * MiB,
} as const;
