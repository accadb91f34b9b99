import { Code, MESSAGE_PREFIX_SIZE, type Metadata } from '../../core/grpc/index.ts';
import type { Outcome } from './response/index.ts';

/** The connection that a call runs on. */
export interface Runner {
  /** Ends the call there. */
  cancel(call: Call): void;
}

/** A unary call: its request, and where it is. */
export class Call {
  /** When it began, by steadyNow. */
  readonly start: number;
  /** When it has to be running, by steadyNow. Infinity if it may wait until its deadline. */
  connectBy = Infinity;
  /** Whether a server has refused it before. It is sent again once. */
  isRetried = false;
  /** Undefined while it waits for a connection. */
  runner: Runner | undefined;
  /** On the connection that it runs on. */
  streamId = 0;

  /**
   * @param deadline when it has to have ended, by steadyNow
   * @param ended called once
   */
  constructor(
    readonly path: string,
    readonly message: Buffer,
    readonly metadata: Metadata | undefined,
    readonly deadline: number,
    now: number,
    readonly ended: (outcome: Outcome, message: Buffer | undefined) => void,
  ) {
    this.start = now;
  }

  /** Bytes to send, the prefix of the message included. */
  get size(): number {
    return MESSAGE_PREFIX_SIZE + this.message.length;
  }

  /** Returns how it ends at its deadline. @param now by steadyNow */
  expired(now: number): Outcome {
    const seconds = ((now - this.start) / 1000).toFixed(3);
    return { code: Code.DEADLINE_EXCEEDED, details: `Deadline exceeded after ${seconds}s` };
  }

  /** When something has to be done about it. */
  get due(): number {
    return Math.min(this.deadline, this.connectBy);
  }
}
