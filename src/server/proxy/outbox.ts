import { DEFAULT_WINDOW, type Frame, pingAck, windowUpdate } from '../../http2/index.ts';
import type { Transport } from './transport.ts';

/** Up to this many bytes, a copy costs less than a write of its own. */
const COALESCE_LIMIT = 16_384;
/** Bytes of connection window that can wait: the initial window is eight times as large. */
const MOST_DEFERRED_WINDOW = DEFAULT_WINDOW >> 3;

/**
 * Collects what goes to one side during one burst of input. Adjacent slices of the same chunk are merged, so that
 * frames that pass unchanged leave as received: in one write and without a copy.
 */
export class Outbox {
  #transport: Transport | undefined;
  #shut = false;
  #slices: Buffer[] = [];
  #size = 0;
  /** Bytes that wait for the next flush. */
  #deferred: Buffer[] = [];
  /** Bytes of connection window that wait for the next flush. */
  #deferredWindow = 0;
  /** The last slice. It can still be extended. */
  #chunk: Buffer | undefined;
  #from = 0;
  #to = 0;

  /** @param defers whether {@link pushDeferred} waits for the next flush */
  constructor(private readonly defers: boolean) {}

  /** Sets the transport. Bytes that are pushed before this wait for it. */
  open(transport: Transport): void {
    this.#transport = transport;
  }

  /** Writes everything that waits. Later bytes are dropped. */
  close(): void {
    this.flushDeferred();
    this.#shut = true;
  }

  /** Adds a part of a chunk without copying it. */
  pass(chunk: Buffer, from: number, to: number): void {
    if (this.#shut) return;
    if (this.#chunk === chunk && this.#to === from) {
      this.#to = to;
    } else {
      this.#seal();
      this.#chunk = chunk;
      this.#from = from;
      this.#to = to;
    }
    this.#size += to - from;
  }

  push(bytes: Buffer): void {
    this.pass(bytes, 0, bytes.length);
  }

  /** Adds bytes that cause no write of their own: they go first in the next one. */
  pushDeferred(bytes: Buffer): void {
    if (!this.defers) this.push(bytes);
    else if (!this.#shut) this.#deferred.push(bytes);
  }

  /**
   * Grants connection window. A Go server returns the few bytes of each request at once, and a write for them would
   * wake the client in the middle of its call: small amounts are deferred as in {@link pushDeferred}, and leave as one
   * frame.
   */
  deferWindow(bytes: number): void {
    const waiting = this.#deferredWindow;
    if (this.defers && waiting + bytes <= MOST_DEFERRED_WINDOW) {
      this.#deferredWindow = waiting + bytes;
      return;
    }
    this.#deferredWindow = 0;
    // Not as one frame, whose increment could be too large for its 31 bits.
    if (waiting > 0) this.push(windowUpdate(0, waiting));
    this.push(windowUpdate(0, bytes));
  }

  /**
   * Acknowledges a PING, in one write with what goes there next. Go peers ping on every burst of data, so each call
   * would cost two more writes, and a write costs more than everything else that the proxy does for a call.
   */
  acknowledgePing(frame: Frame): void {
    this.pushDeferred(pingAck(frame.buffer.subarray(frame.payload, frame.end)));
  }

  /** Bytes that wait for the next write. */
  get size(): number {
    return this.#size;
  }

  /** Whether deferred bytes wait. */
  get hasDeferred(): boolean {
    return this.#deferred.length > 0 || this.#deferredWindow > 0;
  }

  /** Writes everything that waits, deferred bytes included. */
  flushDeferred(): void {
    if (this.hasDeferred) for (const bytes of this.#takeDeferred()) this.push(bytes);
    this.flush();
  }

  /** Holds small amounts for the next flush, as a copy that frees their chunks. Writes large amounts. */
  coalesce(): void {
    if (this.#size > COALESCE_LIMIT) {
      this.flush();
      return;
    }
    this.#seal();
    if (this.#slices.length > 0) this.#slices = [Buffer.concat(this.#slices, this.#size)];
  }

  /** Writes what waits, with deferred bytes first. Writes nothing if only deferred bytes wait. */
  flush(): void {
    if (this.#size === 0 || this.#transport === undefined) return;
    this.#seal();
    if (this.hasDeferred) this.#addDeferred();
    const slices = this.#slices;
    const size = this.#size;
    this.#slices = [];
    this.#size = 0;
    this.#transport.write(slices, size);
  }

  #addDeferred(): void {
    const deferred = this.#takeDeferred();
    for (const bytes of deferred) this.#size += bytes.length;
    this.#slices.unshift(...deferred);
  }

  #takeDeferred(): Buffer[] {
    const deferred = this.#deferred;
    this.#deferred = [];
    if (this.#deferredWindow > 0) deferred.push(windowUpdate(0, this.#deferredWindow));
    this.#deferredWindow = 0;
    return deferred;
  }

  #seal(): void {
    const chunk = this.#chunk;
    if (chunk === undefined) return;
    this.#chunk = undefined;
    const isWholeChunk = this.#from === 0 && this.#to === chunk.length;
    this.#slices.push(isWholeChunk ? chunk : chunk.subarray(this.#from, this.#to));
  }
}
