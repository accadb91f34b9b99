import {
  ConnectionError,
  DEFAULT_MAX_FRAME_SIZE,
  DEFAULT_WINDOW,
  ErrorCode,
  Flag,
  type Frame,
  FrameType,
  LARGEST_WINDOW,
  frameHeader,
} from '../http2/index.ts';
import { type Outbox, type Slab, Slabs } from './transport/index.ts';

/** Who put a lane's data there, and is told how it goes. */
export interface LaneSource {
  /** Flow-controlled bytes of the source have left through the gate, or were thrown away: they hold no window any more. */
  left(lane: Lane, bytes: number): void;
  /** The last frame of the lane has left. */
  finished(lane: Lane): void;
}

type Item =
  /** Everything behind it waits, until {@link Gate.release}. */
  | { readonly kind: 'held' }
  /** Frames without flow control, as they are. */
  | { readonly kind: 'frames'; readonly bytes: Buffer; readonly last: boolean }
  | DataItem;

interface DataItem {
  readonly kind: 'data';
  /** What is still to go. */
  parts: Buffer[];
  size: number;
  /** Bytes that the source's windows are still charged for this: not the same as size, when it was padded or amended. */
  charged: number;
  readonly last: boolean;
  /** Where the parts lie, if the gate has copied them. */
  readonly slab: Slab | undefined;
}

const NO_ITEMS: Item[] = [];

/** One stream in one direction: the receiver's window for it, and what waits for room. */
export class Lane {
  /** Bytes that the receiver takes; below zero after it made its windows smaller (RFC 9113 section 6.9.2). */
  window: number;
  /** Bytes charged to the source for everything queued. */
  charged = 0;
  queue = NO_ITEMS;
  readonly id: number;
  readonly source: LaneSource;

  constructor(id: number, window: number, source: LaneSource) {
    this.id = id;
    this.window = window;
    this.source = source;
  }

  /**
   * The receiver has changed its initial window by this.
   * @throws ConnectionError when the window is now larger than the protocol allows (RFC 9113 section 6.9.2)
   */
  shift(bytes: number): void {
    this.window += bytes;
    if (this.window > LARGEST_WINDOW)
      throw new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, 'SETTINGS make a stream window too large');
  }

  get idle(): boolean {
    return this.queue.length === 0;
  }
}

/**
 * The one way for DATA to a receiver, whoever sends it: knows the receiver's real windows, lets through what fits and keeps
 * the rest in its lane (RFC 9113 section 6.9). A lane's frames stay in order; lanes do not wait for one another.
 */
export class Gate {
  /** The receiver's connection window, in bytes. */
  window = DEFAULT_WINDOW;
  /** The receiver's SETTINGS_MAX_FRAME_SIZE. */
  maxFrameSize = DEFAULT_MAX_FRAME_SIZE;
  /** Frames of streams that have gone through. */
  passed = 0;
  readonly #outbox: Outbox;
  /** Lanes with something queued, the longest waiting first. */
  readonly #waiting = new Set<Lane>();
  readonly #slabs = new Slabs();

  constructor(outbox: Outbox) {
    this.#outbox = outbox;
  }

  /** Adds to the connection window. False when it would be more than the protocol allows. */
  grow(bytes: number): boolean {
    this.window += bytes;
    return this.window <= LARGEST_WINDOW;
  }

  /** Lets a DATA frame through as it is, if it fits. Returns whether it did. */
  pass(lane: Lane, frame: Frame): boolean {
    const size = frame.length;
    if (lane.queue.length > 0) return false;
    if (size > 0 && (size > this.window || size > lane.window || size > this.maxFrameSize)) return false;
    this.window -= size;
    lane.window -= size;
    this.passed += 1;
    this.#outbox.pass(frame.buffer, frame.start, frame.end);
    return true;
  }

  /** Sends as much as fits of a payload, and queues the rest: a copy, since the chunk that it came in is used again. */
  data(lane: Lane, payload: Buffer, charged: number, last: boolean): void {
    const { bytes, slab } = this.#slabs.copy(payload);
    this.#queue(lane, { kind: 'data', parts: [bytes], size: payload.length, charged, last, slab });
    lane.charged += charged;
    this.drain(lane);
  }

  /** Frames that need no window: sent now, or, as a copy, in the lane's order. */
  frames(lane: Lane, bytes: Buffer, from: number, to: number, last: boolean): void {
    if (lane.queue.length > 0) {
      lane.queue.push({ kind: 'frames', bytes: Buffer.from(bytes.subarray(from, to)), last });
      return;
    }
    this.passed += 1;
    this.#outbox.pass(bytes, from, to);
    if (last) lane.source.finished(lane);
  }

  /** Everything that comes for this lane from here on waits. */
  hold(lane: Lane): void {
    this.#queue(lane, { kind: 'held' });
  }

  /** Puts frames without flow control, if any, and data in the place of the hold; what waited behind follows. */
  release(lane: Lane, head: Buffer | undefined, parts: Buffer[], charged: number, last: boolean): void {
    const size = parts.reduce((sum, part) => sum + part.length, 0);
    const at = lane.queue.findIndex((item) => item.kind === 'held');
    if (at === -1) return;
    const items: Item[] = head === undefined ? [] : [{ kind: 'frames', bytes: head, last: false }];
    lane.queue.splice(at, 1, ...items, { kind: 'data', parts, size, charged, last, slab: undefined });
    lane.charged += charged;
    this.drain(lane);
  }

  /** Sends what the windows allow: lanes take turns, a frame each, so that none starves the others. */
  pump(): void {
    let moved = true;
    while (moved && this.#waiting.size > 0) {
      moved = false;
      for (const lane of this.#waiting) if (this.#step(lane)) moved = true;
    }
  }

  /** Throws away what a lane has queued. */
  discard(lane: Lane): void {
    this.#waiting.delete(lane);
    for (const item of lane.queue) this.#letGo(item);
    lane.queue = NO_ITEMS;
    const { charged } = lane;
    lane.charged = 0;
    if (charged > 0) lane.source.left(lane, charged);
  }

  /** Nothing that was sent is in this process any more: its memory may be used again. */
  recycle(): void {
    this.#slabs.recycle();
  }

  #letGo(item: Item): void {
    if (item.kind === 'data' && item.slab !== undefined) this.#slabs.gone(item.slab);
  }

  /** Sends what one lane has queued as far as its windows allow. */
  drain(lane: Lane): void {
    while (this.#step(lane));
  }

  #queue(lane: Lane, item: Item): void {
    // Most lanes never queue: they share an empty list.
    if (lane.queue === NO_ITEMS) lane.queue = [];
    lane.queue.push(item);
    this.#waiting.add(lane);
  }

  /** Sends one thing from a lane's queue. False when nothing could go. */
  #step(lane: Lane): boolean {
    const [item] = lane.queue;
    if (item === undefined || item.kind === 'held') return false;
    if (item.kind === 'data' && !this.#sendData(lane, item)) return false;
    if (item.kind === 'frames') this.#outbox.push(item.bytes);
    if (item.kind === 'data' && (item.size > 0 || item.charged > 0)) return true;
    this.passed += 1;
    lane.queue.shift();
    this.#letGo(item);
    if (lane.queue.length === 0) this.#waiting.delete(lane);
    if (item.last) lane.source.finished(lane);
    return true;
  }

  /** Sends one DATA frame of an item. False when there is no room. */
  #sendData(lane: Lane, item: DataItem): boolean {
    const size = Math.min(item.size, this.maxFrameSize, Math.max(0, Math.min(this.window, lane.window)));
    if (size === 0 && item.size > 0) return false;
    const whole = size === item.size;
    if (size > 0 || item.last) {
      this.#outbox.push(frameHeader(size, FrameType.DATA, whole && item.last ? Flag.END_STREAM : 0, lane.id));
      this.#take(item, size);
    }
    this.window -= size;
    lane.window -= size;
    // With the last byte goes what was charged for padding.
    const charged = whole ? item.charged : Math.min(size, item.charged);
    item.charged -= charged;
    lane.charged -= charged;
    if (charged > 0) lane.source.left(lane, charged);
    return true;
  }

  #take(item: DataItem, size: number): void {
    item.size -= size;
    let rest = size;
    let used = 0;
    for (const part of item.parts) {
      if (rest === 0) break;
      if (part.length > rest) {
        this.#outbox.pass(part, 0, rest);
        item.parts[used] = part.subarray(rest);
        rest = 0;
      } else {
        this.#outbox.push(part);
        rest -= part.length;
        used += 1;
      }
    }
    item.parts.splice(0, used);
  }
}
