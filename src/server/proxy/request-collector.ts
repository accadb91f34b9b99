import { MESSAGE_PREFIX_SIZE } from '../../core/index.ts';
import { ErrorCode, type Frame, windowUpdate } from '../../http2/index.ts';
import type { ConnectionParts } from './connection-parts.ts';
import type { CollectedRequest } from './shared-budget.ts';
import type { LocalStream } from './stream.ts';

const TOO_LONG = 'cri-resize-shim: the request is longer than';
const REQUESTS_FULL = 'cri-resize-shim: the requests of all clients are too long together: retry later';

/** Holds requests of handled calls until their last frame has come: here an unfinished one costs its bytes only. */
export class RequestCollector {
  constructor(private readonly parts: ConnectionParts) {}

  /** Holds a part of a request. The client gets its window back: the limit for all clients bounds this. */
  add(stream: LocalStream, frame: Frame): void {
    const { shared, handledRequestLimit } = this.parts.options;
    stream.collected ??= this.#collected(stream);
    const content = frame.content();
    this.returnWindow(stream.id, frame.length);
    if (stream.collected.size + content.length > handledRequestLimit)
      this.#refuse(stream, `${TOO_LONG} ${handledRequestLimit - MESSAGE_PREFIX_SIZE} bytes`);
    else shared.requests.add(stream.collected, content);
  }

  /** Holds a complete request, whose bytes are still in the memory of a read. */
  hold(stream: LocalStream, content: Buffer): void {
    stream.collected = this.#collected(stream);
    this.parts.options.shared.requests.add(stream.collected, content);
  }

  /** Forgets what is held for a stream. */
  drop(stream: LocalStream): void {
    if (stream.collected === undefined) return;
    this.parts.options.shared.requests.drop(stream.collected);
    stream.collected = undefined;
  }

  /** Returns window for DATA of the client that has left its connection's buffers. */
  returnWindow(id: number, bytes: number): void {
    const stream = this.parts.streams.get(id);
    this.parts.client.windowReleased(bytes);
    if (bytes > 0 && stream !== undefined && !stream.clientEnded) this.parts.toClient.push(windowUpdate(id, bytes));
  }

  #collected(stream: LocalStream): CollectedRequest {
    return { blocks: [], size: 0, refuse: () => this.parts.run('client', () => this.#refuse(stream, REQUESTS_FULL)) };
  }

  /** Ends a call whose request is too long, or the longest when there are too many. */
  #refuse(stream: LocalStream, message: string): void {
    this.parts.options.observer.refused('requests');
    stream.peer.cancel(stream, ErrorCode.CANCEL);
    stream.peer.discard(stream);
    stream.reset = true;
    if (stream.serverEnded) this.parts.streams.closeIfOver(stream);
    else this.parts.streams.refuseCall(stream, message);
  }
}
