import { ConnectionError, ErrorCode, LARGEST_WINDOW } from '../../http2/index.ts';
import type { PoolBlock } from './buffer-pool.ts';

/** The sender of a lane's data. It is notified when its data leaves the queue. */
export interface LaneSource {
  /** Flow-controlled bytes of the source have been sent or dropped: they no longer occupy its windows. */
  released(lane: Lane, bytes: number): void;
  /** The lane's last frame has been sent. */
  finished(lane: Lane): void;
}

/** An entry in a lane's queue. */
export type LaneItem =
  /** Everything behind it waits until {@link FlowControl.release}. */
  | { readonly kind: 'held' }
  /** Frames that are not flow-controlled, as they are sent. */
  | { readonly kind: 'frames'; readonly bytes: Buffer; readonly last: boolean }
  | DataItem;

/** A DATA payload that waits for windows. */
export interface DataItem {
  readonly kind: 'data';
  /** The bytes that remain to be sent. */
  parts: Buffer[];
  size: number;
  /** Memory right behind the last part, for small payloads that follow. */
  spare: Buffer;
  /** Bytes that the source's windows are charged for this item. Differs from `size` for padded or amended data. */
  charged: number;
  last: boolean;
  /** The pool's block that holds the copied parts, if they were copied. */
  readonly block: PoolBlock | undefined;
}

/** No memory for further payloads; see {@link DataItem}. */
export const NO_SPARE = Buffer.alloc(0);

/** The queue of every lane that never queued anything: most lanes. */
export const NO_ITEMS: LaneItem[] = [];

/** One stream in one direction: the receiver's window for it, and the frames that wait for that window. */
export class Lane {
  /** Bytes that the receiver accepts. Negative after the receiver lowered its initial window (RFC 9113 6.9.2). */
  window: number;
  /** Bytes charged to the source for everything queued. */
  charged = 0;
  queue = NO_ITEMS;
  readonly id: number;
  /** Changes only before the first frame. */
  source: LaneSource;

  constructor(id: number, window: number, source: LaneSource) {
    this.id = id;
    this.window = window;
    this.source = source;
  }

  /**
   * Applies a change of the receiver's initial window.
   * @throws ConnectionError when the window exceeds the protocol's maximum (RFC 9113 6.9.2)
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
