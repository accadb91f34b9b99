import { Flag, FrameReader, FrameType, PREFACE, settingsAck, settingsFrame } from '../../http2/index.ts';
import type { Transport, TransportEvents } from './transport.ts';

/**
 * Takes the place of the backend if this process handles all calls of a connection. It is an HTTP/2 server that only
 * sends and acknowledges SETTINGS (RFC 9113 6.5.3): no stream reaches it.
 */
export class NoBackend implements Transport {
  readonly backlog = 0;
  #prefaceLeft = PREFACE.length;
  #waiting: Buffer[] = [settingsFrame([])];
  #isClosed = false;
  readonly #reader = new FrameReader((frame) => {
    if (frame.type === FrameType.SETTINGS && !frame.has(Flag.ACK)) this.#waiting.push(settingsAck());
  });

  constructor(private readonly events: TransportEvents) {
    this.#answerLater();
  }

  write(slices: readonly Buffer[]): void {
    for (const slice of slices) {
      const skipped = Math.min(this.#prefaceLeft, slice.length);
      this.#prefaceLeft -= skipped;
      if (skipped < slice.length) this.#reader.push(slice.subarray(skipped));
    }
    this.#reader.recycle();
    if (this.#waiting.length > 0) this.#answerLater();
  }

  /** Does nothing: it sends less than it receives. */
  pause(): void {
    // Its SETTINGS must reach the client.
  }

  resume(): void {
    // It never pauses.
  }

  end(): void {
    this.destroy();
  }

  destroy(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    queueMicrotask(() => this.events.closed(undefined));
  }

  /** Answers when the event that causes the answer has been handled. */
  #answerLater(): void {
    queueMicrotask(() => {
      const answers = this.#waiting.splice(0);
      if (!this.#isClosed && answers.length > 0) this.events.data(Buffer.concat(answers));
    });
  }
}
