import { Amendment } from './amendment.ts';
import { Lane } from './flow-control.ts';
import { UNAVAILABLE, unavailableBlock } from './grpc.ts';
import type { LocalSide } from './local-side.ts';
import { AmendStream, LocalStream, PassStream, type Stream } from './stream.ts';
import type { Switch } from './connection.ts';
import { ErrorCode, type Frame, LARGEST_WINDOW, headersFrames, rstStream, windowUpdate } from '../http2/index.ts';

/** The streams of a connection: how they begin and the several ways in which they end. */
export class Streams {
  readonly #switch: Switch;
  readonly #open = new Map<number, Stream>();

  constructor(core: Switch) {
    this.#switch = core;
  }

  get(id: number): Stream | undefined {
    return this.#open.get(id);
  }

  all(): Iterable<Stream> {
    return this.#open.values();
  }

  /** Streams whose answer is not complete. */
  get running(): number {
    let count = 0;
    for (const stream of this.#open.values()) if (!stream.delivered) count += 1;
    return count;
  }

  /** Those of them that end by themselves. */
  get ending(): number {
    let count = 0;
    for (const stream of this.#open.values()) if (!stream.delivered && !this.#isWatch(stream)) count += 1;
    return count;
  }

  /**
   * A new stream of the client, led to whoever is to answer it.
   * @param compressed whether its messages are: the local server can read those, an amendment cannot
   */
  open(id: number, path: string, compressed: boolean): Stream {
    const core = this.#switch;
    const { interception, now, observer } = core.options;
    const route = interception.route(path);
    const window = core.client.initialWindow;
    const ahead = Math.min(core.options.readAhead, LARGEST_WINDOW - window);
    let stream: Stream;
    if (route === 'pass') {
      stream = new PassStream(path, now(), new Lane(id, window, core.backend.flow), ahead);
    } else if (route === 'amend' && !compressed) {
      const { requestLimit, responseLimit } = core.options;
      const amendment = new Amendment(requestLimit, responseLimit, window + ahead);
      stream = new AmendStream(path, now(), new Lane(id, window, core.backend.flow), amendment);
    } else {
      const side = core.local();
      const up = new Lane(id, side.initialWindow, side.requests);
      stream = new LocalStream(path, now(), new Lane(id, window, side), up, side);
    }
    this.#open.set(id, stream);
    observer.streamOpened(path, stream.kind);
    return stream;
  }

  /** The last frame of a stream is on its way to the client. */
  delivered(lane: Lane): void {
    const stream = this.#open.get(lane.id);
    if (stream === undefined) return;
    stream.delivered = true;
    this.closeIfOver(stream);
  }

  closeIfOver(stream: Stream): void {
    if (stream.delivered && stream.down.idle && (stream.clientEnded || stream.reset)) this.close(stream);
  }

  /** Forgets a stream and all that waits for it. */
  close(stream: Stream): void {
    if (!this.#open.delete(stream.id)) return;
    const core = this.#switch;
    if (stream.kind === 'amend') core.amender.finish(stream);
    if (stream.kind === 'handle') stream.side.gate.discard(stream.up);
    core.gate.discard(stream.down);
    const { observer, now } = core.options;
    observer.streamClosed(stream.path, stream.kind, stream.outcome, stream.status, now() - stream.openedAt);
  }

  /** The server's RST_STREAM goes to the client, behind what waits. */
  resetByServer(stream: Stream, frame: Frame): void {
    if (!stream.serverEnded) stream.outcome = 'reset';
    stream.serverEnded = true;
    stream.reset = true;
    this.#switch.gate.frames(stream.down, frame.buffer, frame.start, frame.end, true);
  }

  /** The switch itself ends a stream that no server will answer. */
  refuse(stream: Stream, code: ErrorCode): void {
    this.#switch.toClient.push(rstStream(stream.id, code));
    stream.outcome = 'unavailable';
    this.close(stream);
  }

  /** The client has broken the rules of one stream: both ends hear of it (RFC 9113 section 5.4.2). */
  resetBoth(stream: Stream, code: ErrorCode): void {
    const frame = rstStream(stream.id, code);
    this.#switch.toClient.push(frame);
    if (stream.kind === 'handle') stream.side.outbox.push(frame);
    else this.#switch.toBackend.push(frame);
    stream.outcome = 'cancelled';
    this.close(stream);
  }

  /** The client's connection ends: every server hears that its answer is not wanted any more. */
  cancelAll(): void {
    for (const stream of this.#open.values()) {
      if (stream.kind === 'handle') stream.side.outbox.push(rstStream(stream.id, ErrorCode.CANCEL));
      if (!stream.delivered) stream.outcome = 'cancelled';
      this.close(stream);
    }
  }

  /** The backend is gone: its streams that are not answered whole end UNAVAILABLE. */
  backendLost(message: string): void {
    for (const stream of this.#open.values())
      if (stream.kind !== 'handle' && !stream.serverEnded) this.#unavailable(stream, message);
  }

  /** A local server is gone: likewise. */
  localLost(side: LocalSide, message: string): void {
    for (const stream of this.#open.values())
      if (stream.kind === 'handle' && stream.side === side && !stream.serverEnded) this.#unavailable(stream, message);
  }

  /** Nothing runs any more but what never ends by itself: its clients may begin anew elsewhere. */
  endWatches(message: string): void {
    for (const stream of this.#open.values())
      if (this.#isWatch(stream) && !stream.serverEnded) this.#unavailable(stream, message);
  }

  #isWatch(stream: Stream): boolean {
    return this.#switch.options.interception.isWatch?.(stream.path) ?? false;
  }

  /**
   * The backend serves no streams after this one.
   * @returns the highest stream that is served nevertheless, by the local server; 0 for none
   */
  backendStopsAfter(lastStreamId: number): number {
    let highest = 0;
    for (const stream of this.#open.values()) {
      if (stream.kind === 'handle') highest = Math.max(highest, stream.id);
      // Perhaps below the number that the client hears, and yet not served: it may try again elsewhere.
      else if (stream.id > lastStreamId) this.refuse(stream, ErrorCode.REFUSED_STREAM);
    }
    return highest;
  }

  /** The client's SETTINGS_INITIAL_WINDOW_SIZE has changed by this (RFC 9113 section 6.9.2). */
  shiftWindows(change: number): void {
    for (const stream of this.#open.values()) {
      stream.down.shift(change);
      if (stream.kind === 'amend') stream.amendment.allowance += change;
    }
  }

  /** The backend has made its initial window smaller: streams that it does not know keep theirs. */
  keepLocalWindows(bytes: number): void {
    for (const stream of this.#open.values())
      if (stream.kind === 'handle' && !stream.clientEnded) this.#switch.toClient.push(windowUpdate(stream.id, bytes));
  }

  /** Ends a stream for a server that is not there any more. */
  #unavailable(stream: Stream, message: string): void {
    const { amender, gate } = this.#switch;
    stream.outcome = 'unavailable';
    stream.status = UNAVAILABLE;
    stream.serverEnded = true;
    stream.reset = true;
    if (stream.kind === 'amend' && amender.finish(stream)) gate.discard(stream.down);
    const block = unavailableBlock(message, stream.answered);
    const frames = headersFrames(stream.id, block, true, gate.maxFrameSize);
    gate.frames(stream.down, frames, 0, frames.length, true);
  }
}
