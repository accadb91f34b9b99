import type { Frame } from '../../http2/index.ts';
import type { ConnectionParts } from './connection-parts.ts';
import type { RequestDelay } from './held-messages.ts';
import type { Stream } from './stream.ts';

/**
 * Holds back the DATA of requests until the interceptor releases them. Meanwhile the backend already has the call's
 * headers: no part of the call is repeated or lost, and it runs on the client's own connection.
 */
export class Delayer {
  constructor(private readonly parts: ConnectionParts) {}

  /** Takes DATA of a request. Returns false if it is to be forwarded. */
  request(stream: Stream, frame: Frame): boolean {
    const { delay } = stream;
    if (delay === undefined || delay.isOver) return false;
    const bytes = frame.bytes();
    const { held } = this.parts;
    if (!delay.hasRoomFor(frame.length) || held.wouldExceed(bytes.length)) {
      this.release(stream);
      return false;
    }
    held.add(bytes.length);
    delay.hold(Buffer.from(bytes), frame.length);
    const collected = delay.request.add(frame.content());
    if (collected === 'complete' && !delay.isAsked) this.#ask(stream, delay);
    else if (collected === 'unusable' || (collected === 'partial' && stream.clientEnded)) this.release(stream);
    return true;
  }

  /** Forwards what is held, unless the backend has reset the stream. */
  release(stream: Stream): void {
    const { delay } = stream;
    if (delay === undefined || delay.isOver) return;
    const { client, options, toBackend } = this.parts;
    stream.forwardedAt = options.now();
    const { frames, size } = this.#end(delay);
    if (stream.reset) client.refund(size);
    else for (const frame of frames) toBackend.push(frame);
  }

  /** The stream ends. An answered request still has to end at the backend; a reset stream gets nothing. */
  finish(stream: Stream): void {
    const { delay } = stream;
    delay?.onEnd?.();
    if (delay === undefined || delay.isOver) return;
    if (stream.outcome === 'answered') this.release(stream);
    else this.parts.client.refund(this.#end(delay).size);
  }

  #end(delay: RequestDelay): ReturnType<RequestDelay['end']> {
    const ended = delay.end();
    for (const frame of ended.frames) this.parts.held.add(-frame.length);
    return ended;
  }

  #ask(stream: Stream, delay: RequestDelay): void {
    delay.isAsked = true;
    const { interception } = this.parts.options;
    const onEnd = (action: () => void): void => {
      delay.onEnd = action;
    };
    const call = { path: stream.path, request: delay.request.message(), timeoutMs: delay.timeoutMs, onEnd };
    const waiting = interception.delay?.(call);
    if (waiting === undefined) {
      this.release(stream);
      return;
    }
    const release = (): void => this.parts.results.add(() => this.release(stream));
    waiting.then(release, release);
  }
}
