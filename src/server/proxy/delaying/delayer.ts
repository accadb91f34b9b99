import type { Frame } from '../../http2/index.ts';
import type { Results } from '../amending/index.ts';
import type { HeldBytes } from '../bounds/index.ts';
import type { Outcome } from '../observer.ts';
import type { ProxyConnectionOptions } from '../options.ts';
import type { Outbox } from '../transport/index.ts';
import type { RequestDelay } from './request-delay.ts';

/** A call whose request may be held back. */
export interface DelayedStream {
  readonly path: string;
  readonly clientEnded: boolean;
  readonly outcome: Outcome;
  readonly reset: boolean;
  readonly delay: RequestDelay | undefined;
  forwardedAt: number;
}

/** What {@link Delayer} uses of the connection. */
export interface DelayerPorts {
  readonly options: ProxyConnectionOptions;
  readonly toBackend: Outbox;
  readonly results: Results;
  readonly held: HeldBytes;
  readonly client: {
    /** Returns connection window to the client, for DATA that the backend never gets. */
    refund(size: number): void;
  };
}

/**
 * Holds back the DATA of requests until the interceptor lets them through. The backend has the call's headers meanwhile: nothing of
 * the call is repeated or lost, and it runs on the client's own connection.
 */
export class Delayer {
  readonly #ports: DelayerPorts;

  constructor(ports: DelayerPorts) {
    this.#ports = ports;
  }

  /** Takes DATA of a request. Returns false if it is to be forwarded. */
  request(stream: DelayedStream, frame: Frame): boolean {
    const { delay } = stream;
    if (delay === undefined || delay.isOver) return false;
    const bytes = frame.bytes();
    const { held } = this.#ports;
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
  release(stream: DelayedStream): void {
    const { delay } = stream;
    if (delay === undefined || delay.isOver) return;
    const { client, options, toBackend } = this.#ports;
    stream.forwardedAt = options.now();
    const { frames, size } = this.#end(delay);
    if (stream.reset) client.refund(size);
    else for (const frame of frames) toBackend.push(frame);
  }

  /** The stream ends. An answered request still has to end at the backend; a reset stream gets nothing. */
  finish(stream: DelayedStream): void {
    const { delay } = stream;
    delay?.onEnd?.();
    if (delay === undefined || delay.isOver) return;
    if (stream.outcome === 'answered') this.release(stream);
    else this.#ports.client.refund(this.#end(delay).size);
  }

  #end(delay: RequestDelay): ReturnType<RequestDelay['end']> {
    const ended = delay.end();
    for (const frame of ended.frames) this.#ports.held.add(-frame.length);
    return ended;
  }

  #ask(stream: DelayedStream, delay: RequestDelay): void {
    delay.isAsked = true;
    const { interception } = this.#ports.options;
    const onEnd = (action: () => void): void => {
      delay.onEnd = action;
    };
    const call = { path: stream.path, request: delay.request.message(), timeoutMs: delay.timeoutMs, onEnd };
    const waiting = interception.delay?.(call);
    if (waiting === undefined) {
      this.release(stream);
      return;
    }
    const release = (): void => this.#ports.results.add(() => this.release(stream));
    waiting.then(release, release);
  }
}
