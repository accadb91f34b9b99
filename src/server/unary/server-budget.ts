import { Code, MiB, Reason, ShimError } from '../../core/index.ts';

/** Resources that the clients of a gRPC server use at the same time: bytes of requests and running calls. */
export class ServerBudget {
  #bytes = 0;
  #calls = 0;

  /** @param refused called for each refusal */
  constructor(
    private readonly limits: ServerLimits,
    private readonly refused: (budget: 'handled_calls' | 'requests' | 'decompressed') => void,
  ) {}

  /**
   * Takes bytes of a request. Returns whether they fit; if not, nothing is taken.
   * @param taken bytes that the request has taken before
   */
  take(bytes: number, taken = 0): boolean {
    const { requestBytes, shortRequestBytes } = this.limits;
    const isShort = taken + bytes <= GRPC_LIMITS.shortRequest;
    if (this.#bytes + bytes > (isShort ? requestBytes : requestBytes - shortRequestBytes)) {
      this.refused('requests');
      return false;
    }
    this.#bytes += bytes;
    return true;
  }

  giveBack(bytes: number): void {
    this.#bytes -= bytes;
  }

  /** Bytes that are taken. */
  get bytes(): number {
    return this.#bytes;
  }

  /** A decompressed request is too long. */
  tooLong(): ShimError {
    this.refused('decompressed');
    return overloaded(`a request has at most ${GRPC_LIMITS.decompressedBytes} bytes after decompression`);
  }

  /** Runs a call. Rejects with OVERLOADED if too many run. */
  async run<Result>(action: () => Promise<Result>): Promise<Result> {
    const { runningCalls } = this.limits;
    if (this.#calls >= runningCalls) {
      this.refused('handled_calls');
      throw overloaded(`${runningCalls} calls run already, which is the maximum: retry later`);
    }
    this.#calls += 1;
    try {
      return await action();
    } finally {
      this.#calls -= 1;
    }
  }

  /** Runs a call while the bytes of its request are taken. Rejects with OVERLOADED if they do not fit. */
  async holding<Result>(bytes: number, action: () => Promise<Result>): Promise<Result> {
    if (!this.take(bytes)) throw overloaded(REQUESTS_FULL);
    try {
      return await action();
    } finally {
      this.giveBack(bytes);
    }
  }
}

export const REQUESTS_FULL = 'the requests of all clients are too long together: retry later';

const overloaded = (message: string): ShimError => new ShimError(Code.RESOURCE_EXHAUSTED, Reason.OVERLOADED, message);

/** Budgets of one gRPC server of the shim. docs/limits.md lists them. */
export interface ServerLimits {
  /** The longest request, in bytes. */
  readonly requestLimit: number;
  /** Bytes of requests of all clients, from their first byte until their handlers end. */
  readonly requestBytes: number;
  /** The part of them for short requests only: long requests of one or two clients do not keep short ones out. */
  readonly shortRequestBytes: number;
  /** Calls whose handlers run, of all clients. */
  readonly runningCalls: number;
}

/** Server for intercepted calls. Takes up to 16 MiB, as containerd does. The proxy limits its calls further. */
export const CRI_LIMITS: ServerLimits = {
  requestLimit: 16 * MiB,
  requestBytes: 20 * MiB,
  shortRequestBytes: 2 * MiB,
  runningCalls: 2048,
};

/** Resize API server. Takes requests far above its 256 KiB, to reject them with their size. Fewer watches. */
export const API_LIMITS = {
  requestLimit: 8 * MiB,
  requestBytes: 10 * MiB,
  shortRequestBytes: MiB,
  runningCalls: 1024,
  connections: 128,
} as const satisfies ServerLimits & { readonly connections: number };

/** Budgets of each gRPC server of the shim. */
export const GRPC_LIMITS = {
  /** Streams of one connection. */
  streams: 1024,
  /** The longest request that is short, in bytes. Those of kubelet have some kilobytes. */
  shortRequest: MiB / 16,
  /** The memory of one part of a request (a DATA frame) beyond its bytes. */
  partOverhead: 256,
  /** Ended HTTP/2 sessions whose native part is kept until a full garbage collection: about 25 KB each. */
  keptSessions: 512,
  /** The longest request after decompression. CRI clients do not compress, and a pod cannot start with more. */
  decompressedBytes: 8 * MiB,
} as const;
