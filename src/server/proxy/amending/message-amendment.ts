import { MessageBuffer } from './message-buffer.ts';

/** A message that has been given to the interceptor, which has not answered. */
export interface WaitingMessage {
  /** With its gRPC prefix. */
  readonly bytes: Buffer;
  readonly timer: NodeJS.Timeout;
}

/** The state of one stream whose messages are amended one by one. */
export class MessageAmendment {
  readonly buffer: MessageBuffer;
  waiting: WaitingMessage | undefined = undefined;
  /** Whether the stream's lane contains a hold: any bytes are held. */
  holding = false;
  /** Held bytes, the oldest, that do not count against the backend's windows: it has got those back. */
  credited = 0;
  /** The server's last DATA, its trailers or its reset have come. */
  ended = false;
  /** Whether DATA was the last frame. */
  last = false;
  /** Bytes that the backend may still send on this stream. Counted apart from the client's window, which gets more. */
  allowance: number;

  /**
   * @param limit the longest message that is amended, in bytes
   * @param window bytes that the backend may send on the stream at first
   */
  constructor(limit: number, window: number) {
    this.buffer = new MessageBuffer(limit);
    this.allowance = window;
  }

  /** Bytes that have come and have not been sent on. */
  get held(): number {
    return this.buffer.size + (this.waiting?.bytes.length ?? 0);
  }

  /** Held bytes that count against the backend's windows. */
  get charged(): number {
    return this.held - this.credited;
  }
}
