import {
  DEFAULT_MAX_FRAME_SIZE,
  DEFAULT_WINDOW,
  Flag,
  type Frame,
  FrameType,
  frameHeader,
  LARGEST_WINDOW,
} from '../../http2/index.ts';
import { BufferPool } from './buffer-pool.ts';
import { type DataItem, type Lane, type LaneItem, NO_ITEMS, NO_SPARE } from './lane.ts';
import type { Outbox } from './outbox.ts';

/** A shorter queued payload takes this much memory, which later ones share: each alone would need an item. */
const SMALL_PAYLOAD = 512;

/**
 * Sends all DATA to one receiver, whichever server it comes from. Knows the receiver's real windows, sends what fits
 * and queues the rest in its lane (RFC 9113 6.9). The frames of a lane stay in order; lanes do not wait for one
 * another.
 */
export class FlowControl {
  /** The receiver's connection window, in bytes. */
  window = DEFAULT_WINDOW;
  /** The receiver's SETTINGS_MAX_FRAME_SIZE. */
  maxFrameSize = DEFAULT_MAX_FRAME_SIZE;
  /** Frames of streams that have been sent. */
  sentFrames = 0;
  /** Lanes with queued items, the longest waiting first. */
  readonly #waiting = new Set<Lane>();
  readonly #pool = new BufferPool();
  /** Windows have become larger since the last {@link pump}. */
  #isDue = false;

  constructor(private readonly outbox: Outbox) {}

  /** Adds to the connection window. Returns false if it exceeds the protocol's maximum. */
  grow(bytes: number): boolean {
    this.window += bytes;
    return this.window <= LARGEST_WINDOW;
  }

  /** Sends a DATA frame unchanged if the windows allow it. Returns whether they did. */
  pass(lane: Lane, frame: Frame): boolean {
    const size = frame.length;
    if (lane.queue.length > 0) return false;
    if (size > 0 && (size > this.window || size > lane.window || size > this.maxFrameSize)) return false;
    this.window -= size;
    lane.window -= size;
    this.sentFrames += 1;
    this.outbox.pass(frame.buffer, frame.start, frame.end);
    return true;
  }

  /** Sends a payload in one DATA frame if the windows allow it. Returns whether they did. */
  send(lane: Lane, parts: readonly Buffer[], last: boolean): boolean {
    const size = parts.reduce((sum, part) => sum + part.length, 0);
    if (lane.queue.length > 0 || size > this.window || size > lane.window || size > this.maxFrameSize) return false;
    this.window -= size;
    lane.window -= size;
    this.sentFrames += 1;
    this.outbox.push(frameHeader(size, FrameType.DATA, last ? Flag.END_STREAM : 0, lane.id));
    for (const part of parts) this.outbox.push(part);
    return true;
  }

  /** Sends the part of a payload that fits and queues the rest, as a copy: the chunk it came in is reused. */
  data(lane: Lane, payload: Buffer, charged: number, last: boolean): void {
    if (!joined(lane, payload, charged, last)) {
      const { bytes, spare, block } = this.#pool.copy(payload, SMALL_PAYLOAD);
      this.#queue(lane, { kind: 'data', parts: [bytes], size: payload.length, spare, charged, last, block });
    }
    lane.charged += charged;
    this.drain(lane);
  }

  /** Sends frames that need no window. If the lane has a queue, a copy of them is queued instead. */
  frames(lane: Lane, bytes: Buffer, from: number, to: number, last: boolean): void {
    if (lane.queue.length > 0) {
      lane.queue.push({ kind: 'frames', bytes: Buffer.from(bytes.subarray(from, to)), last });
      return;
    }
    this.sentFrames += 1;
    this.outbox.pass(bytes, from, to);
    if (last) lane.source.finished(lane);
  }

  /** Makes everything that comes for this lane wait until {@link release}. */
  hold(lane: Lane): void {
    this.#queue(lane, { kind: 'held' });
  }

  /**
   * Replaces a lane's hold by data, and sends what waited behind it.
   * @param head frames without flow control that go before the data
   */
  release(lane: Lane, head: Buffer | undefined, parts: Buffer[], charged: number, last: boolean): void {
    const size = parts.reduce((sum, part) => sum + part.length, 0);
    const at = lane.queue.findIndex((item) => item.kind === 'held');
    if (at === -1) return;
    const items: LaneItem[] = head === undefined ? [] : [{ kind: 'frames', bytes: head, last: false }];
    lane.queue.splice(at, 1, ...items, { kind: 'data', parts, size, spare: NO_SPARE, charged, last, block: undefined });
    lane.charged += charged;
    this.drain(lane);
  }

  /** Sends data in front of a lane's hold, which stays. */
  insert(lane: Lane, parts: Buffer[], charged: number): void {
    const size = parts.reduce((sum, part) => sum + part.length, 0);
    const at = lane.queue.findLastIndex((item) => item.kind === 'held');
    if (at === -1) return;
    lane.queue.splice(at, 0, { kind: 'data', parts, size, spare: NO_SPARE, charged, last: false, block: undefined });
    lane.charged += charged;
    this.drain(lane);
  }

  /** Has {@link pumpIfDue} send later: a read may hold thousands of window updates, a pump visits all lanes. */
  pumpLater(): void {
    this.#isDue = true;
  }

  pumpIfDue(): void {
    if (!this.#isDue) return;
    this.#isDue = false;
    this.pump();
  }

  /** Sends what the windows allow. Lanes take turns, one frame each, so that none starves the others. */
  pump(): void {
    let moved = true;
    while (moved && this.#waiting.size > 0) {
      moved = false;
      for (const lane of this.#waiting) if (this.#step(lane)) moved = true;
    }
  }

  /** Drops what a lane has queued. */
  discard(lane: Lane): void {
    this.#waiting.delete(lane);
    for (const item of lane.queue) this.#releaseBlock(item);
    lane.queue = NO_ITEMS;
    const { charged } = lane;
    lane.charged = 0;
    if (charged > 0) lane.source.released(lane, charged);
  }

  /** Makes memory of sent data available again. Call it when the transports hold no bytes any more. */
  recycle(): void {
    this.#pool.recycle();
  }

  /** Sends what one lane has queued, as far as its windows allow. */
  drain(lane: Lane): void {
    while (this.#step(lane));
  }

  #queue(lane: Lane, item: LaneItem): void {
    // Most lanes never queue: they share an empty list.
    if (lane.queue === NO_ITEMS) lane.queue = [];
    lane.queue.push(item);
    this.#waiting.add(lane);
  }

  /** Sends one frame or item of a lane's queue. Returns false if nothing could be sent. */
  #step(lane: Lane): boolean {
    const [item] = lane.queue;
    if (item === undefined || item.kind === 'held') return false;
    if (item.kind === 'data' && !this.#sendData(lane, item)) return false;
    if (item.kind === 'frames') this.outbox.push(item.bytes);
    if (item.kind === 'data' && (item.size > 0 || item.charged > 0)) return true;
    this.sentFrames += 1;
    lane.queue.shift();
    this.#releaseBlock(item);
    if (lane.queue.length === 0) this.#waiting.delete(lane);
    if (item.last) lane.source.finished(lane);
    return true;
  }

  /** Sends one DATA frame of an item. Returns false if the windows are empty. */
  #sendData(lane: Lane, item: DataItem): boolean {
    const size = Math.min(item.size, this.maxFrameSize, Math.max(0, Math.min(this.window, lane.window)));
    if (size === 0 && item.size > 0) return false;
    const isRest = size === item.size;
    if (size > 0 || item.last) {
      this.outbox.push(frameHeader(size, FrameType.DATA, isRest && item.last ? Flag.END_STREAM : 0, lane.id));
      this.#take(item, size);
    }
    this.window -= size;
    lane.window -= size;
    // The charge for padding is released with the last byte.
    const charged = isRest ? item.charged : Math.min(size, item.charged);
    item.charged -= charged;
    lane.charged -= charged;
    if (charged > 0) lane.source.released(lane, charged);
    return true;
  }

  /** Moves the first `size` bytes of an item to the outbox. */
  #take(item: DataItem, size: number): void {
    item.size -= size;
    let rest = size;
    let used = 0;
    for (const part of item.parts) {
      if (rest === 0) break;
      if (part.length > rest) {
        this.outbox.pass(part, 0, rest);
        item.parts[used] = part.subarray(rest);
        rest = 0;
      } else {
        this.outbox.push(part);
        rest -= part.length;
        used += 1;
      }
    }
    item.parts.splice(0, used);
  }

  #releaseBlock(item: LaneItem): void {
    if (item.kind === 'data' && item.block !== undefined) this.#pool.release(item.block);
  }
}

/** Adds a small payload to the last item of a lane. Returns false if it has no memory for it. */
function joined(lane: Lane, payload: Buffer, charged: number, last: boolean): boolean {
  const item = lane.queue.at(-1);
  if (item?.kind !== 'data' || item.last || payload.length === 0 || payload.length > item.spare.length) return false;
  const part = item.parts.pop();
  if (part === undefined) return false;
  payload.copy(item.spare);
  item.parts.push(Buffer.from(part.buffer, part.byteOffset, part.length + payload.length));
  item.spare = item.spare.subarray(payload.length);
  item.size += payload.length;
  item.charged += charged;
  item.last = last;
  return true;
}
