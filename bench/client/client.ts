/** A unary call with its encoded request, which fits into one frame. */
export interface Call {
  readonly path: string;
  readonly request: Uint8Array;
}

/** Called once for each call, with the error if it failed, and the length of the response where it is known. */
export type Done = (error: Error | undefined, length?: number) => void;

/** One connection to one server. */
export interface BenchClient {
  start(call: Call, done: Done): void;
  /** Makes one call. Returns its response message, without gRPC's prefix. */
  call(call: Call): Promise<Buffer>;
  close(): void;
}

/**
 * The client that makes the calls. Its own cost is part of every side.
 * - `grpc-go`: the library that kubelet has, with messages as bytes.
 * - `frames`: as little work as possible, so that nothing hides what the shim adds. No client in use is as fast.
 * - `grpc-js`: the library that clients of the shim in Node use.
 */
export type ClientKind = 'grpc-go' | 'frames' | 'grpc-js';
