import { type Frame, windowUpdate } from '../../http2/index.ts';
import type { BackendFlow } from './backend-flow.ts';
import type { FlowControl } from './flow-control.ts';
import type { Lane } from './lane.ts';
import type { SkipReason } from './interception.ts';
import type { ProxyConnectionOptions } from './options.ts';
import type { Outbox } from './outbox.ts';
import type { HeldBytes } from './shared-budget.ts';
import type { Results } from './results.ts';
import { MESSAGE_PREFIX_SIZE, messagePrefix } from '../../core/index.ts';
import { MessageCollector } from './message-collector.ts';

/** A unary call whose response is amended. */
export interface AmendedStream {
  readonly id: number;
  readonly path: string;
  /** When its request was forwarded. */
  readonly forwardedAt: number;
  readonly down: Lane;
  readonly serverEnded: boolean;
  /** Read-ahead that the backend has been granted for it. */
  readonly reserved: number;
  answered: boolean;
  readonly amendment: Amendment;
}

/** What {@link Amender} uses of the connection. */
export interface AmenderPorts {
  readonly options: ProxyConnectionOptions;
  readonly toBackend: Outbox;
  /** Towards the client. */
  readonly flowControl: FlowControl;
  readonly backend: {
    readonly flow: BackendFlow;
    /** Widens the backend's window of the stream to what the client's allows. */
    grantStream(stream: AmendedStream): void;
  };
  /** The requests and responses of all streams. */
  readonly held: HeldBytes;
  readonly results: Results;
}

/** Copies requests, holds responses until they are complete, has them amended and sends them to the client. */
export class Amender {
  readonly #ports: AmenderPorts;

  constructor(ports: AmenderPorts) {
    this.#ports = ports;
  }

  /** Copies a part of the request, which is forwarded meanwhile. */
  request(stream: AmendedStream, part: Buffer): void {
    const { request, state } = stream.amendment;
    if (state.kind === 'passing') return;
    const before = request.size;
    const collected = request.add(part);
    const { held } = this.#ports;
    if (collected === 'unusable' || held.wouldExceed(request.size)) request.clear();
    held.add(request.size - before);
  }

  /** Holds the response's first HEADERS. Returns false if they are to be forwarded instead. */
  head(stream: AmendedStream, bytes: Buffer): boolean {
    const { amendment } = stream;
    if (amendment.state.kind !== 'collecting' || stream.answered || amendment.head !== undefined) return false;
    amendment.head = Buffer.from(bytes);
    this.#hold(stream);
    return true;
  }

  /** Holds a part of the response. */
  response(stream: AmendedStream, frame: Frame): void {
    const ports = this.#ports;
    const { amendment } = stream;
    this.#hold(stream);
    ports.backend.flow.queued(frame.length);
    amendment.charged += frame.length;
    amendment.last = stream.serverEnded;
    const { response } = amendment;
    const before = response.size;
    const collected = response.add(frame.content());
    ports.held.add(response.size - before);
    if (collected === 'unusable') this.#skip(stream, 'response', undefined);
    else if (collected === 'complete') this.#amend(stream);
    else if (amendment.last) this.#skip(stream, 'response', undefined);
    else if (ports.held.wouldExceed(response.missing) || ports.backend.flow.isOverfull)
      this.#skip(stream, 'memory', undefined);
    else this.#creditBackend(stream);
  }

  /** Trailers or a reset have come: a message that is still partial stays so. */
  responseEnds(stream: AmendedStream): void {
    const { amendment } = stream;
    if (amendment.state.kind !== 'collecting') return;
    if (amendment.response.size > 0) this.#skip(stream, 'response', undefined);
    else if (amendment.holding) this.#release(stream, undefined);
    else this.finish(stream);
  }

  /** Frees what is held for a stream. Returns whether that includes any of the response, which is then lost. */
  finish(stream: AmendedStream): boolean {
    const { amendment } = stream;
    const { holding, charged } = amendment;
    this.#ports.held.add(-amendment.request.size - amendment.response.size);
    amendment.finish();
    this.#ports.backend.flow.released(stream.down, charged);
    return holding;
  }

  #hold(stream: AmendedStream): void {
    if (stream.amendment.holding) return;
    stream.amendment.holding = true;
    this.#ports.flowControl.hold(stream.down);
  }

  /** Returns window to the backend, so that it completes a held message however small the client's windows are. */
  #creditBackend(stream: AmendedStream): void {
    const { amendment } = stream;
    const { charged } = amendment;
    if (charged === 0) return;
    const { backend, toBackend } = this.#ports;
    amendment.charged = 0;
    amendment.allowance += charged;
    backend.flow.credited(charged);
    toBackend.push(windowUpdate(stream.id, charged));
    toBackend.push(windowUpdate(0, charged));
  }

  /** Has a complete response amended. */
  #amend(stream: AmendedStream): void {
    const { amendment, path } = stream;
    if (amendment.state.kind !== 'collecting') return;
    if (amendment.request.state !== 'complete') {
      this.#skip(stream, 'request', undefined);
      return;
    }
    const { interception, amendTimeout, now } = this.#ports.options;
    const { results } = this.#ports;
    const skip = (reason: SkipReason, error: unknown): void => results.add(() => this.#skip(stream, reason, error));
    const exchange = {
      path,
      request: amendment.request.message(),
      response: amendment.response.message(),
      backendMs: now() - stream.forwardedAt,
    };
    try {
      const answer = interception.amend(exchange);
      if (!(answer instanceof Promise)) {
        this.#release(stream, answer);
        return;
      }
      amendment.state = { kind: 'waiting', timer: setTimeout(() => skip('slow', undefined), amendTimeout) };
      results.runSoon();
      answer.then(
        (amended) => results.add(() => this.#release(stream, amended)),
        (error: unknown) => skip('failed', error),
      );
    } catch (error) {
      this.#skip(stream, 'failed', error);
    }
  }

  /** Sends the response as received. */
  #skip(stream: AmendedStream, reason: SkipReason, error: unknown): void {
    if (stream.amendment.state.kind === 'passing') return;
    this.#ports.options.observer.amendSkipped(stream.path, reason, error);
    this.#release(stream, undefined);
  }

  #release(stream: AmendedStream, amended: Uint8Array | undefined): void {
    const { amendment } = stream;
    if (amendment.state.kind === 'passing') return;
    const { backend, flowControl } = this.#ports;
    const { charged, head, last, response } = amendment;
    // It waits for the client alone from now on: the backend gets no further window for it.
    const credited = Math.max(0, response.size - charged);
    const parts = amendment.release(amended);
    amendment.charged = 0;
    this.finish(stream);
    if (head !== undefined) stream.answered = true;
    if (credited > 0) backend.flow.queued(credited);
    flowControl.release(stream.down, head, parts, charged + credited, last);
    backend.grantStream(stream);
  }
}

/** Up to this many bytes, joining a message with its prefix costs less than a gathered write. */
const JOIN_LIMIT = 16_384;

/**
 * The progress of a response:
 * - `collecting`: its message is not complete; nothing has been sent.
 * - `waiting`: the message is complete and held until the interceptor has answered.
 * - `passing`: the rest is forwarded as it arrives.
 */
export type AmendmentState =
  | { readonly kind: 'collecting' }
  | { readonly kind: 'waiting'; readonly timer: NodeJS.Timeout }
  | { readonly kind: 'passing' };

/** The state of one call whose response is amended: a copy of its request, and its held response. */
export class Amendment {
  state: AmendmentState = { kind: 'collecting' };
  readonly request: MessageCollector;
  readonly response: MessageCollector;
  /** Whether any part of the response is held, that is, whether the stream's lane contains a hold. */
  holding = false;
  /** Bytes of the held response that still count against the backend's windows. */
  charged = 0;
  /**
   * The response's HEADERS as received. They wait for the message: sent alone they would cost a write and wake the
   * client.
   */
  head: Buffer | undefined = undefined;
  /** Whether the held DATA was the last frame. */
  last = false;
  /** Bytes that the backend may still send on this stream. Counted apart from the client's window, which gets more. */
  allowance: number;

  /**
   * @param requestLimit the longest request that is copied, in bytes
   * @param responseLimit the longest response that is held, in bytes
   * @param window bytes that the backend may send on the stream at first
   */
  constructor(requestLimit: number, responseLimit: number, window: number) {
    this.request = new MessageCollector(requestLimit);
    this.response = new MessageCollector(responseLimit);
    this.allowance = window;
  }

  /** Returns the held bytes as received, or the amended message in their place. */
  release(amended: Uint8Array | undefined): Buffer[] {
    if (amended === undefined) return this.response.size === 0 ? [] : [this.response.bytes];
    const prefix = messagePrefix(amended.length);
    const total = MESSAGE_PREFIX_SIZE + amended.length;
    if (total <= JOIN_LIMIT) return [Buffer.concat([prefix, amended], total)];
    return [prefix, Buffer.from(amended.buffer, amended.byteOffset, amended.length)];
  }

  /** Stops the timer and frees what was held. */
  finish(): void {
    if (this.state.kind === 'waiting') clearTimeout(this.state.timer);
    this.state = { kind: 'passing' };
    this.holding = false;
    this.head = undefined;
    this.charged = 0;
    this.request.clear();
    this.response.clear();
  }
}
