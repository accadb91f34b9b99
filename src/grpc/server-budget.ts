import { Code, Reason, ShimError } from '../core/errors/index.ts';
import { GRPC_LIMITS, type ServerLimits } from './limits.ts';

/** What a gRPC server's clients use at the same time: bytes of requests and running calls. */
export class ServerBudget {
  #bytes = 0;
  #calls = 0;
  readonly #limits: ServerLimits;
  readonly #refused: (budget: 'handled_calls' | 'requests' | 'decompressed') => void;

  /** @param refused called for each refusal */
  constructor(limits: ServerLimits, refused: (budget: 'handled_calls' | 'requests' | 'decompressed') => void) {
    this.#limits = limits;
    this.#refused = refused;
  }

  /**
   * Takes bytes of a request. Returns whether they fit; if not, nothing is taken.
   * @param taken bytes that the request has taken before
   */
  take(bytes: number, taken = 0): boolean {
    const { requestBytes, shortRequestBytes } = this.#limits;
    const isShort = taken + bytes <= GRPC_LIMITS.shortRequest;
    if (this.#bytes + bytes > (isShort ? requestBytes : requestBytes - shortRequestBytes)) {
      this.#refused('requests');
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
    this.#refused('decompressed');
    return overloaded(`a request has at most ${GRPC_LIMITS.decompressedBytes} bytes after decompression`);
  }

  /** Runs a call. Rejects with OVERLOADED if too many run. */
  async run<Result>(action: () => Promise<Result>): Promise<Result> {
    const { runningCalls } = this.#limits;
    if (this.#calls >= runningCalls) {
      this.#refused('handled_calls');
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
