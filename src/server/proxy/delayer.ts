import type { Frame } from '../../http2/index.ts';
import type { Results } from './results.ts';
import type { HeldBytes } from './shared-budget.ts';
import type { Outcome } from './interception.ts';
import type { ProxyConnectionOptions } from './options.ts';
import type { Outbox } from './outbox.ts';
import { MessageCollector } from './message-collector.ts';
import { MESSAGE_PREFIX_SIZE } from '../../core/index.ts';

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

/** Most DATA frames of a request that is held back. Clients send a short one in one frame. */
const MOST_FRAMES = 16;

/** The state of one request that is held back: its DATA waits, while its headers have been forwarded. */
export class RequestDelay {
  readonly request: MessageCollector;
  /** The timeout of the call (grpc-timeout) in milliseconds; Infinity without one. */
  readonly timeoutMs: number;
  /** Whether the interceptor has been asked. */
  isAsked = false;
  isOver = false;
  /** Called when the call ends. */
  onEnd: (() => void) | undefined;
  #frames: Buffer[] = [];
  #size = 0;
  readonly #limit: number;

  /** @param limit the longest request that is held back, in bytes */
  constructor(limit: number, timeoutMs: number) {
    this.#limit = limit + MESSAGE_PREFIX_SIZE;
    this.request = new MessageCollector(limit);
    this.timeoutMs = timeoutMs;
  }

  /**
   * Whether a further frame may be held: padding counts as well.
   * @param size what flow control counts of it
   */
  hasRoomFor(size: number): boolean {
    return this.#frames.length < MOST_FRAMES && this.#size + size <= this.#limit;
  }

  /**
   * @param frame a copy
   * @param size what flow control counts of it
   */
  hold(frame: Buffer, size: number): void {
    this.#frames.push(frame);
    this.#size += size;
  }

  /** Ends the delay. Returns the frames, and what flow control counts of them. */
  end(): { readonly frames: readonly Buffer[]; readonly size: number } {
    const held = { frames: this.#frames, size: this.#size };
    this.isOver = true;
    this.#frames = [];
    this.#size = 0;
    this.request.clear();
    return held;
  }
}
