import { Code, Reason, ShimError } from '../../core/index.ts';
import { ErrorCode, type Frame, headersFrames, rstStream, windowUpdate } from '../../http2/index.ts';
import { statusOf as failureStatus } from '../unary/status.ts';
import { backendInitial } from './backend-flow.ts';
import type { ConnectionParts } from './connection-parts.ts';
import { failureBlock, millisecondsOf, statusBlock } from './grpc.ts';
import { Amendment, MessageAmendment, RequestDelay } from './held-messages.ts';
import { Lane } from './lane.ts';
import type { OwnCalls } from './shared-budget.ts';
import { AmendStream, type LocalPeer, LocalStream, MessageAmendStream, PassStream, type Stream } from './stream.ts';

/** The streams of a connection: how they begin and the ways in which they end. */
export class Streams {
  readonly #open = new Map<number, Stream>();
  /** Open streams whose response has been sent completely. */
  #delivered = 0;
  /** Open streams that have a place among the handled calls of all connections. */
  readonly #handled: OwnCalls = { all: 0, compressed: 0 };
  /** When the last stream ended, by the connection's clock; when the connection opened, if there was none. */
  lastUsed: number;
  /** The number of streams that have ended. */
  ended = 0;

  constructor(private readonly parts: ConnectionParts) {
    this.lastUsed = parts.options.now();
  }

  get(id: number): Stream | undefined {
    return this.#open.get(id);
  }

  /** The number of open streams. */
  get count(): number {
    return this.#open.size;
  }

  all(): Iterable<Stream> {
    return this.#open.values();
  }

  /** The number of streams whose response has not been sent completely. */
  get running(): number {
    return this.#open.size - this.#delivered;
  }

  /** The number of running streams that end by themselves: all but watches. */
  get ending(): number {
    let count = 0;
    for (const stream of this.#open.values()) if (!stream.delivered && !this.#isWatch(stream)) count += 1;
    return count;
  }

  /**
   * Opens a new stream of the client on its route.
   * @param compressed whether its messages are compressed: the local server can read those of unary calls, an amendment
   * cannot
   * @param timeout its grpc-timeout; empty without one
   */
  open(id: number, path: string, compressed: boolean, timeout: string): Stream {
    const parts = this.parts;
    const { interception, now, observer } = parts.options;
    const route = interception.route(path);
    const window = parts.control.initialWindow;
    const granted = backendInitial(parts.options, window);
    let stream: Stream;
    // Not decompressed here: a gRPC client for each such stream could itself be attacked by a backend.
    const isUnreadable = route === 'amend-each' && compressed;
    if (isUnreadable) observer.amendSkipped(path, 'request', undefined);
    if (route === 'pass' || isUnreadable) {
      stream = new PassStream(path, now(), new Lane(id, window, parts.backend.flow), granted - window);
    } else if (route === 'amend' && !compressed) {
      const { requestLimit, responseLimit } = parts.options;
      const amendment = new Amendment(requestLimit, responseLimit, granted);
      stream = new AmendStream(path, now(), new Lane(id, window, parts.backend.flow), amendment);
    } else if (route === 'amend-each') {
      const amendment = new MessageAmendment(parts.options.responseLimit, granted);
      stream = new MessageAmendStream(path, now(), new Lane(id, window, parts.backend.flow), amendment);
    } else {
      // A stream lasts much longer than the decompression of its request.
      const counts = compressed && (interception.isUnary?.(path) ?? true);
      const admitted = parts.options.shared.calls.take(this.#handled, counts);
      const peer = parts.handling;
      stream = new LocalStream(path, now(), new Lane(id, window, peer), { peer, compressed: counts, admitted });
    }
    if (!compressed && stream.kind !== 'handle' && interception.isDelayed?.(path) === true)
      stream.delay = new RequestDelay(parts.options.delayLimit, millisecondsOf(timeout));
    this.#open.set(id, stream);
    parts.options.shared.streams.changed(this.#open.size, this.#open.size - 1);
    observer.streamOpened(path, stream.kind);
    return stream;
  }

  /** Records that the last frame of a stream has been sent to the client. */
  delivered(lane: Lane): void {
    const stream = this.#open.get(lane.id);
    if (stream === undefined) return;
    if (!stream.delivered) this.#delivered += 1;
    stream.delivered = true;
    this.closeIfOver(stream);
  }

  closeIfOver(stream: Stream): void {
    if (stream.delivered && stream.down.idle && (stream.clientEnded || stream.reset)) this.close(stream);
  }

  /** Removes a stream and drops everything that waits for it. */
  close(stream: Stream): void {
    if (!this.#open.delete(stream.id)) return;
    const parts = this.parts;
    parts.options.shared.streams.changed(this.#open.size, this.#open.size + 1);
    if (stream.delivered) this.#delivered -= 1;
    if (stream.reserved > 0) parts.backend.flow.unreserve(stream.reserved);
    parts.delayer.finish(stream);
    if (stream.kind === 'amend') parts.amender.finish(stream);
    if (stream.kind === 'amend-each') parts.messageAmender.finish(stream);
    if (stream.kind === 'handle') {
      stream.peer.discard(stream);
      if (stream.admitted) parts.options.shared.calls.release(this.#handled, stream.compressed);
    }
    parts.flowControl.discard(stream.down);
    const { observer, now } = parts.options;
    this.lastUsed = now();
    this.ended += 1;
    observer.streamClosed(stream.path, stream.kind, stream.outcome, stream.status, this.lastUsed - stream.openedAt);
  }

  /** Sends the server's RST_STREAM to the client, after what waits for the stream. */
  resetByServer(stream: Stream, frame: Frame): void {
    if (!stream.serverEnded) stream.outcome = 'reset';
    stream.serverEnded = true;
    stream.reset = true;
    this.parts.flowControl.frames(stream.down, frame.buffer, frame.start, frame.end, true);
  }

  /** Resets a stream that no server will answer. */
  refuse(stream: Stream, code: ErrorCode): void {
    this.parts.toClient.push(rstStream(stream.id, code));
    stream.outcome = 'unavailable';
    this.close(stream);
  }

  /** Resets a stream on both ends, after the client has broken its rules (RFC 9113 5.4.2). */
  resetBoth(stream: Stream, code: ErrorCode): void {
    const frame = rstStream(stream.id, code);
    this.parts.toClient.push(frame);
    if (stream.kind === 'handle') stream.peer.cancel(stream, code);
    else this.parts.toBackend.push(frame);
    stream.outcome = 'cancelled';
    this.close(stream);
  }

  /** Cancels all handled streams: the client's connection ends. The backend's connection ends with it. */
  cancelAll(): void {
    for (const stream of this.#open.values()) {
      if (stream.kind === 'handle') stream.peer.cancel(stream, ErrorCode.CANCEL);
      if (!stream.delivered) stream.outcome = 'cancelled';
      this.close(stream);
    }
  }

  /** Ends the backend's unfinished streams with UNAVAILABLE: the backend is gone. */
  backendLost(message: string): void {
    for (const stream of this.#open.values())
      if (stream.kind !== 'handle' && !stream.serverEnded) this.#endUnavailable(stream, message);
  }

  /** Ends the unfinished streams of a local connection with UNAVAILABLE: that connection is gone. */
  localLost(peer: LocalPeer, message: string): void {
    for (const stream of this.#open.values())
      if (stream.kind === 'handle' && stream.peer === peer && !stream.serverEnded)
        this.#endUnavailable(stream, message);
  }

  /**
   * Ends watches with UNAVAILABLE, so that their clients start them again elsewhere. Drops DATA that waits for the
   * client's windows: a client that does not read never opens them, and a watch that ends behind such DATA would never
   * be delivered. A message whose amendment is pending is sent first, which takes at most the amendment's timeout.
   */
  endWatches(message: string): void {
    const { flowControl, messageAmender } = this.parts;
    for (const stream of this.#open.values()) {
      if (stream.delivered || !this.#isWatch(stream)) continue;
      const isAmending = stream.kind === 'amend-each' && stream.amendment.waiting !== undefined;
      if (isAmending && stream.serverEnded) continue;
      if (!isAmending) {
        if (stream.kind === 'amend-each') messageAmender.finish(stream);
        flowControl.discard(stream.down);
      }
      this.#endUnavailable(stream, message);
    }
  }

  #isWatch(stream: Stream): boolean {
    return this.parts.options.interception.isWatch?.(stream.path) ?? false;
  }

  /**
   * Refuses the backend's streams after this one, which it does not serve.
   * @returns the highest stream that is handled; 0 for none
   */
  backendStopsAfter(lastStreamId: number): number {
    let highest = 0;
    for (const stream of this.#open.values()) {
      if (stream.kind === 'handle') highest = Math.max(highest, stream.id);
      // The id may be below the last stream announced to the client. REFUSED_STREAM reports that a retry is safe.
      else if (stream.id > lastStreamId) this.refuse(stream, ErrorCode.REFUSED_STREAM);
    }
    return highest;
  }

  /**
   * Applies a change of the client's SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113 6.9.2).
   * @param granted what changes for the backend
   */
  shiftWindows(change: number, granted: number): void {
    for (const stream of this.#open.values()) {
      stream.down.shift(change);
      if (stream.kind === 'pass') stream.ahead += granted - change;
      else if (stream.kind !== 'handle') stream.amendment.allowance += granted;
    }
  }

  /**
   * The backend has lowered its initial window. Returns the difference to the client on streams the backend does not
   * know.
   */
  restoreLocalWindows(bytes: number): void {
    for (const stream of this.#open.values())
      if (stream.kind === 'handle' && !stream.clientEnded) this.parts.toClient.push(windowUpdate(stream.id, bytes));
  }

  /** Ends a stream with UNAVAILABLE for a server that is gone. */
  #endUnavailable(stream: Stream, message: string): void {
    stream.outcome = 'unavailable';
    this.#endWith(stream, Code.UNAVAILABLE, statusBlock(Code.UNAVAILABLE, message, stream.answered));
  }

  /** Ends a handled stream with OVERLOADED, and asks the client to send no more of it (RFC 9113 8.1). */
  refuseCall(stream: LocalStream, message: string): void {
    const stop = stream.clientEnded ? [] : [rstStream(stream.id, ErrorCode.NO_ERROR)];
    const status = failureStatus(new ShimError(Code.RESOURCE_EXHAUSTED, Reason.OVERLOADED, message));
    const { code, details, trailers } = status;
    const block = stream.answered ? statusBlock(code, details, true) : failureBlock(code, details, trailers);
    this.#endWith(stream, code, block, stop);
  }

  /** Ends a stream with a gRPC status. What the client still sends is dropped. */
  #endWith(stream: Stream, code: number, block: Buffer, behind: readonly Buffer[] = []): void {
    const { amender, flowControl, messageAmender } = this.parts;
    stream.status = code;
    stream.serverEnded = true;
    stream.reset = true;
    if (stream.kind === 'amend' && amender.finish(stream)) flowControl.discard(stream.down);
    if (stream.kind === 'amend-each') messageAmender.responseEnds(stream);
    const frames = Buffer.concat([headersFrames(stream.id, block, true, flowControl.maxFrameSize), ...behind]);
    flowControl.frames(stream.down, frames, 0, frames.length, true);
  }
}
