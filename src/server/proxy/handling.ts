import { bufferUsed, Code, LONGEST_TIMER_MS, MESSAGE_PREFIX_SIZE, messagePrefix } from '../../core/index.ts';
import { type Frame, type HeaderField, headersFrames } from '../../http2/index.ts';
import type { WaitingCalls } from './call-starts.ts';
import type { ConnectionParts } from './connection-parts.ts';
import { failureBlock, millisecondsOf, OK_TRAILERS, RESPONSE_HEADERS } from './grpc.ts';
import type { HandledAnswer } from './interception.ts';
import type { Lane } from './lane.ts';
import { RequestCollector } from './request-collector.ts';
import { type LocalPeer, type LocalStream, RunningCall, serverEnded } from './stream.ts';

/**
 * Serves the plain unary calls that the shim handles: reads the request, calls the handler and writes its answer. All
 * others (streams, compressed or malformed ones) go to the local server unchanged, also if that shows only at the end
 * of the request.
 */
export class Handling implements LocalPeer, WaitingCalls {
  /** Nothing waits: handlers take requests at once. */
  readonly waiting = 0;
  readonly #collector: RequestCollector;
  /** Calls with complete requests that have not started. A call that ends is removed. */
  readonly #ready = new Set<LocalStream>();

  constructor(private readonly parts: ConnectionParts) {
    this.#collector = new RequestCollector(parts);
  }

  open(stream: LocalStream, fields: readonly HeaderField[], endStream: boolean): void {
    const { handle, interception } = this.parts.options;
    const isUnary = handle !== undefined && (interception.isUnary?.(stream.path) ?? true);
    const plain = !isUnary || endStream || stream.compressed ? undefined : plainCall(fields);
    if (plain === undefined) {
      this.#handOver(stream, fields, endStream);
      return;
    }
    const call = new RunningCall(stream.path, plain.headers, stream.openedAt + plain.timeoutMs);
    stream.call = call;
    stream.fields = plain.fields;
    if (plain.timeoutMs < Infinity)
      call.timer = setTimeout(() => this.parts.run('local', () => this.#expire(stream, call)), plain.timeoutMs);
  }

  request(stream: LocalStream, frame: Frame): void {
    if (stream.serverEnded) {
      this.#collector.returnWindow(stream.id, frame.length);
      return;
    }
    if (!stream.clientEnded || stream.collected !== undefined) {
      this.#collector.add(stream, frame);
      if (stream.clientEnded) this.ended(stream);
      return;
    }
    const content = frame.content();
    if (!isOneMessage(content, content.length)) {
      if (this.#handOver(stream, stream.fields, false)) stream.peer.request(stream, frame);
      else this.#collector.returnWindow(stream.id, frame.length);
      return;
    }
    this.#collector.returnWindow(stream.id, frame.length);
    // In the memory of the read: it starts when the read has been handled, or is copied then.
    stream.content = content;
    this.#ready.add(stream);
  }

  ended(stream: LocalStream): void {
    const { collected } = stream;
    if (stream.serverEnded) return;
    const [first] = collected?.blocks ?? [];
    if (collected === undefined || first === undefined || !isOneMessage(first, collected.size)) {
      if (this.#handOver(stream, stream.fields, false)) stream.peer.ended(stream);
      return;
    }
    this.#ready.add(stream);
  }

  /**
   * Starts complete calls when an event has been handled. Calls that cost too much for one turn of the event loop start
   * later. No call starts before the frames behind it have been read, because they may cancel it.
   */
  startReady(): void {
    if (this.#ready.size === 0) return;
    const { starts } = this.parts.options.shared;
    for (let bytes = this.nextBytes; bytes !== undefined && starts.take(bytes); bytes = this.nextBytes)
      this.#startFirst();
    for (const stream of this.#ready) {
      const { content } = stream;
      if (content === undefined) continue;
      // Cleared before the request is held: holding may refuse another request of this connection, which also calls
      // this method.
      stream.content = undefined;
      this.#collector.hold(stream, content);
    }
    if (this.nextBytes !== undefined) starts.wait(this);
  }

  get nextBytes(): number | undefined {
    if (this.parts.client.reader.paused) return undefined;
    for (const stream of this.#ready) return sizeOf(stream);
    return undefined;
  }

  startNext(): void {
    this.parts.asClient(() => this.#startFirst());
  }

  /** Does nothing: {@link discard} follows and cancels the call. */
  cancel(): void {
    // No other connection needs to be notified.
  }

  discard(stream: LocalStream): void {
    this.#forget(stream);
    const { call } = stream;
    if (call === undefined) return;
    clearTimeout(call.timer);
    if (!call.answered) call.cancel();
  }

  released(): void {
    // Answers occupy no window of a server.
  }

  finished(lane: Lane): void {
    this.parts.streams.delivered(lane);
  }

  /** Passes a call on to the local server. Returns false if it has been rejected instead. */
  #handOver(stream: LocalStream, fields: readonly HeaderField[], endStream: boolean): boolean {
    const { call } = stream;
    const peer = this.parts.locals.open(stream.id);
    if (peer === undefined) {
      if (call !== undefined) this.#reject(stream, call);
      return false;
    }
    clearTimeout(call?.timer);
    stream.call = undefined;
    stream.peer = peer;
    stream.down.source = peer;
    peer.open(stream, fields, endStream);
    stream.fields = [];
    return true;
  }

  /** Ends a call with a malformed request that the local server cannot take, because later streams have been opened. */
  #reject(stream: LocalStream, call: RunningCall): void {
    this.#forget(stream);
    this.#fail(stream, call, { code: Code.INTERNAL, details: MALFORMED, trailers: [] });
  }

  /** Drops the request of a call that ends before its start. */
  #forget(stream: LocalStream): void {
    this.#ready.delete(stream);
    stream.content = undefined;
    this.#collector.drop(stream);
  }

  #startFirst(): void {
    for (const stream of this.#ready) {
      this.#ready.delete(stream);
      this.#start(stream);
      return;
    }
  }

  #start(stream: LocalStream): void {
    const { call } = stream;
    const { handle, shared } = this.parts.options;
    if (call === undefined || handle === undefined) return;
    const request = requestOf(
      stream.collected === undefined ? [stream.content ?? NOTHING] : shared.requests.complete(stream.collected),
    );
    this.#forget(stream);
    stream.fields = [];
    bufferUsed(request.length);
    call.request = request;
    // Answers that become available together leave in one write.
    handle(call, (answer) => this.parts.results.add(() => this.#answer(stream, call, answer)));
  }

  #answer(stream: LocalStream, call: RunningCall, answer: HandledAnswer): void {
    if (call.answered || call.cancelled) return;
    if (answer instanceof Uint8Array) this.#respond(stream, call, answer);
    else this.#fail(stream, call, answer);
  }

  #respond(stream: LocalStream, call: RunningCall, message: Buffer): void {
    this.#over(stream, call, 0);
    const { flowControl } = this.parts;
    const { maxFrameSize } = flowControl;
    const { down, id } = stream;
    stream.answered = true;
    flowControl.hold(down);
    const head = headersFrames(id, RESPONSE_HEADERS, false, maxFrameSize);
    flowControl.release(down, head, [messagePrefix(message.length), message], 0, false);
    const trailers = headersFrames(id, OK_TRAILERS, true, maxFrameSize);
    flowControl.frames(down, trailers, 0, trailers.length, true);
  }

  #fail(stream: LocalStream, call: RunningCall, { code, details, trailers }: Exclude<HandledAnswer, Buffer>): void {
    this.#over(stream, call, code);
    const { flowControl } = this.parts;
    const frames = headersFrames(stream.id, failureBlock(code, details, trailers), true, flowControl.maxFrameSize);
    flowControl.frames(stream.down, frames, 0, frames.length, true);
  }

  #over(stream: LocalStream, call: RunningCall, code: number): void {
    clearTimeout(call.timer);
    call.answered = true;
    serverEnded(stream);
    stream.status = code;
  }

  /** The deadline has passed. The client may still be sending its request. */
  #expire(stream: LocalStream, call: RunningCall): void {
    if (call.answered || call.cancelled) return;
    this.#forget(stream);
    call.cancel();
    this.#fail(stream, call, { code: Code.DEADLINE_EXCEEDED, details: 'Deadline exceeded', trailers: [] });
  }
}

const NOTHING = Buffer.alloc(0);
const MALFORMED = 'the request is not one uncompressed message';

/** Bytes of a complete request. */
const sizeOf = ({ collected, content }: LocalStream): number => collected?.size ?? content?.length ?? 0;

/** Returns a request without its prefix, in own memory: it would hold a slab of Node's pool until handled. */
function requestOf(parts: readonly Buffer[]): Buffer {
  const size = parts.reduce((sum, part) => sum + part.length, 0) - MESSAGE_PREFIX_SIZE;
  const request = Buffer.allocUnsafeSlow(size);
  let at = -MESSAGE_PREFIX_SIZE;
  for (const part of parts) {
    // The prefix is in the first part, whose size is that of a block of memory, or the whole request's.
    part.copy(request, Math.max(at, 0), Math.max(-at, 0));
    at += part.length;
  }
  return request;
}

/** Whether a request is one uncompressed message. */
const isOneMessage = (start: Buffer, size: number): boolean =>
  size >= MESSAGE_PREFIX_SIZE && start.readUInt8(0) === 0 && start.readUInt32BE(1) === size - MESSAGE_PREFIX_SIZE;

/** A request whose headers permit handling in the proxy. */
export interface PlainCall {
  /** All fields, in memory of their own: the call waits for its request. */
  readonly fields: readonly HeaderField[];
  /** Those without pseudo-header fields. Each name occurs once. */
  readonly headers: readonly HeaderField[];
  /** Milliseconds from the headers on; Infinity without a deadline. */
  readonly timeoutMs: number;
}

/** Header lists of CRI clients have a tenth of this. Both are below what a node:http2 server accepts. */
const MOST_FIELDS = 64;
const MOST_OCTETS = 16_384;
/** :method, :scheme, :path and :authority, each of which a node:http2 server requires. */
const PSEUDO_FIELDS = 4;

const NAME = /^[a-z0-9_.-]+$/;
/** Visible ASCII, with spaces inside. */
const VALUE = /^[!-~](?:[ -~]*[!-~])?$/;
const TIMEOUT = /^\d{1,8}[HMSmun]$/;

/** Headers that HTTP/2 forbids, servers check against the request, or the shim's gRPC servers use themselves. */
const UNUSUAL =
  /^(?:connection|content-length|cookie|expect|host|http2-settings|keep-alive|proxy-connection|transfer-encoding|upgrade|x-cri-resize-shim-.*)$/;

/**
 * Returns what a call needs from its headers if they are those of a plain gRPC call: POST, a gRPC content type, no
 * compression, and nothing that a server may refuse. Returns undefined for all others: the local server answers those,
 * however malformed they are.
 */
export function plainCall(received: readonly HeaderField[]): PlainCall | undefined {
  if (received.length > MOST_FIELDS) return undefined;
  const fields: HeaderField[] = [];
  const values = new Map<string, string>();
  const headers: HeaderField[] = [];
  let octets = 0;
  for (const one of received) {
    const field = one.owned();
    const { name, value } = field;
    fields.push(field);
    octets += name.length + value.length;
    const isPseudo = name.startsWith(':');
    if (values.has(name) || (isPseudo ? headers.length > 0 : !NAME.test(name)) || !VALUE.test(value)) return undefined;
    values.set(name, value);
    if (isPseudo) continue;
    if (UNUSUAL.test(name)) return undefined;
    headers.push(field);
  }
  if (octets > MOST_OCTETS || fields.length - headers.length !== PSEUDO_FIELDS) return undefined;
  return isGrpcRequest(values) ? { fields, headers, timeoutMs: timeoutOf(values) } : undefined;
}

function isGrpcRequest(values: ReadonlyMap<string, string>): boolean {
  const scheme = values.get(':scheme');
  const timeout = values.get('grpc-timeout');
  return (
    values.get(':method') === 'POST' &&
    (scheme === 'http' || scheme === 'https') &&
    values.get(':path')?.startsWith('/') === true &&
    values.has(':authority') &&
    values.get('content-type')?.startsWith('application/grpc') === true &&
    (values.get('te') ?? 'trailers') === 'trailers' &&
    (values.get('grpc-encoding') ?? 'identity') === 'identity' &&
    (timeout === undefined || (TIMEOUT.test(timeout) && millisecondsOf(timeout) <= LONGEST_TIMER_MS))
  );
}

/** Returns the timeout in whole milliseconds, rounded down like the timer's; Infinity if there is none. */
const timeoutOf = (values: ReadonlyMap<string, string>): number => {
  const timeout = values.get('grpc-timeout');
  return timeout === undefined ? Infinity : Math.floor(millisecondsOf(timeout));
};
