import {
  ConnectionError,
  DEFAULT_TABLE_SIZE,
  DEFAULT_WINDOW,
  ErrorCode,
  FLOOD_LIMIT,
  Flag,
  FloodMeter,
  FRAME_HEADER_SIZE,
  type Frame,
  type FrameReader,
  HEADERS_COST,
  type HeaderBlock,
  type HeaderField,
  HpackDecoder,
  HpackEncoder,
  headersInPlace,
  PREFACE,
  rstStream,
  windowUpdate,
} from '../../http2/index.ts';
import type { ConnectionParts } from './connection-parts.ts';
import { frameReader, TURN_COST } from './dispatch.ts';
import type { LocalPeer, LocalStream, Stream } from './stream.ts';

/**
 * Limit of bytes that wait for a server, above which no further request is read. A header block that refers to the
 * client's dynamic table grows up to 2,000 times when it is forwarded, because servers get no table.
 */
export const HEADERS_LIMIT = 262_144;
/** A smaller DATA frame that does not end its request is a fragment. Streams forwarded unread may have any. */
const FRAGMENT = 64;
const TOO_MANY_CALLS = 'cri-resize-shim: too many calls run already: retry later';

/** Reads and checks what the client sends, and forwards it to the server of its stream. */
export class ClientSide {
  readonly reader: FrameReader;
  /** The highest stream id that the client has opened. */
  lastStreamId = 0;
  /** Whether reading is paused until a server has taken the bytes that wait for it. */
  waits = false;
  /** Bytes of the connection window to return to the client, for DATA that is not forwarded to the backend. */
  #windowToReturn = 0;
  /** Bytes of DATA that the client may still send on this connection. */
  #window = DEFAULT_WINDOW;
  #prefaceLeft = PREFACE.length;
  readonly #decoder: HpackDecoder;
  readonly #encoder = new HpackEncoder();
  readonly #fragments: FloodMeter;
  readonly #resets: FloodMeter;

  constructor(private readonly parts: ConnectionParts) {
    const { control, options } = parts;
    const { clientHeaderListLimit, now } = options;
    this.reader = frameReader(
      clientHeaderListLimit,
      {
        data: (frame) => this.#data(frame),
        headers: (block) => this.#headers(block),
        reset: (frame) => this.#reset(frame),
        settings: (frame) => control.settings(frame),
        settingsAcknowledged: (frame) => parts.backend.acknowledged(frame),
        ping: (frame) => control.ping(frame),
        pingAcknowledged: (frame) =>
          parts.gracefulShutdown.pingAcknowledged(frame.buffer.subarray(frame.payload, frame.end)),
        goaway: (frame) => parts.toBackend.pass(frame.buffer, frame.start, frame.end),
        windowUpdate: (frame) => control.windowUpdate(frame),
      },
      { turn: TURN_COST, headers: HEADERS_COST },
    );
    this.#decoder = new HpackDecoder(DEFAULT_TABLE_SIZE, clientHeaderListLimit);
    this.#fragments = new FloodMeter('small DATA', FLOOD_LIMIT, now);
    this.#resets = new FloodMeter('RST_STREAM', FLOOD_LIMIT, now);
  }

  /** @throws ConnectionError */
  push(chunk: Buffer): void {
    const expected = Math.min(this.#prefaceLeft, chunk.length);
    if (expected > 0) {
      const from = PREFACE.length - this.#prefaceLeft;
      if (chunk.compare(PREFACE, from, from + expected, 0, expected) !== 0)
        throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'not an HTTP/2 client');
      this.#prefaceLeft -= expected;
    }
    if (expected < chunk.length) this.reader.push(expected === 0 ? chunk : chunk.subarray(expected));
  }

  /** Returns connection window to the client for DATA that has left the proxy for the local server. */
  windowReleased(bytes: number): void {
    this.#windowToReturn += bytes;
  }

  /** Records a larger connection window of the client. */
  windowGranted(bytes: number): void {
    this.#window += bytes;
  }

  /** Returns connection window to the client. */
  returnWindow(): void {
    if (this.#windowToReturn === 0) return;
    this.parts.toClient.push(windowUpdate(0, this.#windowToReturn));
    this.windowGranted(this.#windowToReturn);
    this.#windowToReturn = 0;
  }

  /** Returns connection window later, for DATA that the backend never gets. */
  refund(size: number): void {
    this.#windowToReturn += size;
  }

  /** Continues reading after the servers have taken what waited for them. */
  continue(): void {
    this.waits = false;
    this.reader.resume();
  }

  #data(frame: Frame): void {
    const parts = this.parts;
    this.#window -= frame.length;
    // Checked here because the backend does not see all of it.
    if (this.#window < 0) throw new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, 'DATA exceeds the connection window');
    const stream = parts.streams.get(frame.streamId);
    if (stream === undefined) {
      this.refuseIdle(frame);
      // The stream has ended here; the client may not have known that yet.
      this.#windowToReturn += frame.length;
      return;
    }
    if (stream.clientEnded || stream.reset) {
      this.#windowToReturn += frame.length;
      if (stream.clientEnded) this.resetBoth(stream, ErrorCode.STREAM_CLOSED);
      return;
    }
    // The server has no use for padding.
    const { length } = frame.has(Flag.PADDED) ? frame.content() : frame;
    stream.clientEnded = frame.has(Flag.END_STREAM);
    if (length < FRAGMENT && stream.kind !== 'pass' && !stream.clientEnded) this.#fragments.count();
    if (stream.kind === 'handle') {
      this.#toLocal(stream, (peer) => peer.request(stream, frame));
    } else {
      if (parts.backend.gone) this.#windowToReturn += frame.length;
      if (stream.kind === 'amend') parts.amender.request(stream, frame.content());
      if (!parts.delayer.request(stream, frame)) parts.toBackend.pass(frame.buffer, frame.start, frame.end);
    }
    parts.streams.closeIfOver(stream);
  }

  #headers(headers: HeaderBlock): void {
    const fields = this.#decoder.decode(headers.block);
    const stream = this.parts.streams.get(headers.streamId);
    if (stream !== undefined) {
      this.#trailers(stream, fields, headers.endStream);
      return;
    }
    if (headers.streamId % 2 === 0)
      throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'the client opens a stream with an even number');
    if (headers.streamId > this.lastStreamId) {
      this.lastStreamId = headers.streamId;
      this.#open(headers, fields);
      return;
    }
    // Trailers of a stream that has ended here may still arrive; any other HEADERS open a stream twice.
    if (!headers.endStream || fields.some(({ name }) => name === ':path'))
      throw new ConnectionError(ErrorCode.STREAM_CLOSED, `HEADERS for stream ${headers.streamId}, which is closed`);
  }

  #trailers(stream: Stream, fields: readonly HeaderField[], endStream: boolean): void {
    const parts = this.parts;
    if (stream.reset) return;
    if (stream.clientEnded) {
      this.resetBoth(stream, ErrorCode.STREAM_CLOSED);
      return;
    }
    if (!endStream) {
      this.resetBoth(stream, ErrorCode.PROTOCOL_ERROR);
      return;
    }
    stream.clientEnded = true;
    if (stream.kind === 'handle') this.#toLocal(stream, (peer) => peer.ended(stream));
    else {
      parts.delayer.release(stream);
      this.#toBackend(stream.id, fields, true);
    }
    parts.streams.closeIfOver(stream);
  }

  #open(headers: HeaderBlock, fields: readonly HeaderField[]): void {
    const parts = this.parts;
    const { streamId, endStream } = headers;
    if (!parts.lifecycle.admits(streamId, parts.flowControl.maxFrameSize)) return;
    const { count } = parts.streams;
    if (count >= parts.options.streamLimit || !parts.options.shared.streams.admits(count, 1)) {
      this.#resets.count();
      // The client may send it again: it has had no effect.
      parts.toClient.push(rstStream(streamId, ErrorCode.REFUSED_STREAM));
      parts.options.observer.refused('streams');
      return;
    }
    let path = '';
    let encoding = 'identity';
    let timeout = '';
    for (const { name, value } of fields) {
      if (name === ':path') path = value;
      else if (name === 'grpc-encoding') encoding = value;
      else if (name === 'grpc-timeout') timeout = value;
    }
    const stream = parts.streams.open(streamId, path, encoding !== 'identity', timeout);
    stream.clientEnded = endStream;
    if (stream.kind === 'handle') this.#openLocal(stream, fields);
    else if (parts.backend.accepts(streamId)) this.#forward(headers, fields);
    else parts.streams.refuse(stream, ErrorCode.REFUSED_STREAM);
  }

  /** Opens a handled stream, or refuses it if too many of all clients run. */
  #openLocal(stream: LocalStream, fields: readonly HeaderField[]): void {
    if (stream.admitted) {
      stream.peer.open(stream, fields, stream.clientEnded);
      // The client assumes the backend's initial window, which may be small. The backend never widens a stream it does
      // not know.
      const missing = DEFAULT_WINDOW - this.parts.backend.initialWindow;
      if (missing > 0 && !stream.clientEnded) this.parts.toClient.push(windowUpdate(stream.id, missing));
      this.#stopAbove(stream.peer.waiting);
      return;
    }
    this.parts.options.observer.refused('handled_calls');
    this.parts.streams.refuseCall(stream, TOO_MANY_CALLS);
  }

  /**
   * Forwards a request's headers. They are forwarded unchanged only if they do not use the client's dynamic table,
   * which the backend does not have; most clients repeat fields from it.
   */
  #forward(headers: HeaderBlock, fields: readonly HeaderField[]): void {
    const fits = headers.block.length <= this.parts.backend.maxFrameSize;
    if (headers.bare && fits && this.#decoder.plain && this.#encoder.announced)
      this.parts.toBackend.pass(headers.buffer, headers.start, headers.end);
    else this.#toBackend(headers.streamId, fields, headers.endStream);
  }

  #toBackend(id: number, fields: readonly HeaderField[], endStream: boolean): void {
    const padded = this.#encoder.encode(fields, FRAME_HEADER_SIZE);
    this.parts.toBackend.push(headersInPlace(id, padded, endStream, this.parts.backend.maxFrameSize));
    this.#stopAbove(this.parts.toBackend.size);
  }

  /** Passes a part of a request on. If the call is not plain, its headers follow now, which may be many. */
  #toLocal(stream: LocalStream, pass: (peer: LocalPeer) => void): void {
    const { peer } = stream;
    pass(peer);
    if (stream.peer !== peer) this.#stopAbove(stream.peer.waiting);
  }

  /** Stops reading if more bytes than {@link HEADERS_LIMIT} wait for a server. */
  #stopAbove(waiting: number): void {
    if (waiting <= HEADERS_LIMIT) return;
    this.waits = true;
    this.reader.stop();
  }

  #reset(frame: Frame): void {
    this.#resets.count();
    const parts = this.parts;
    const stream = parts.streams.get(frame.streamId);
    if (stream === undefined) {
      this.refuseIdle(frame);
      return;
    }
    if (stream.kind === 'handle') stream.peer.cancel(stream, frame.buffer.readUInt32BE(frame.payload));
    else parts.toBackend.pass(frame.buffer, frame.start, frame.end);
    stream.outcome = 'cancelled';
    parts.streams.close(stream);
  }

  /**
   * Resets a stream on both ends. A client that makes the proxy reset streams starts and ends calls at the servers as
   * fast as one that resets them itself (CVE-2025-8671).
   */
  resetBoth(stream: Stream, code: ErrorCode): void {
    this.#resets.count();
    this.parts.streams.resetBoth(stream, code);
  }

  /** Throws for a frame of an idle stream. A frame of a closed stream is not an error (RFC 9113 5.1). */
  refuseIdle(frame: Frame): void {
    if (frame.streamId % 2 === 0 || frame.streamId > this.lastStreamId)
      throw new ConnectionError(
        ErrorCode.PROTOCOL_ERROR,
        `frame of type ${frame.type} for stream ${frame.streamId}, which is idle`,
      );
  }
}
