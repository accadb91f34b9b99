import type { Transport } from './transport.ts';

/** Bytes that are worth a copy, to save them a write of their own. */
const KEEP_UP_TO = 16_384;

/**
 * What goes to one side during one burst of input. Slices that lie behind one another in the same chunk become one, so that
 * frames that pass unchanged leave as they came: in one write, without a copy.
 */
export class Outbox {
  #transport: Transport | undefined;
  #shut = false;
  #slices: Buffer[] = [];
  #size = 0;
  /** What goes with the next burst, whenever that is. */
  #unhurried: Buffer[] = [];
  /** The last slice, still open to be made longer. */
  #chunk: Buffer | undefined;
  #from = 0;
  #to = 0;

  /** What is sent before this waits. */
  open(transport: Transport): void {
    this.#transport = transport;
  }

  /** Writes what waits, and takes nothing more. */
  close(): void {
    this.hurry();
    this.#shut = true;
  }

  /** A part of a chunk that was read. */
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

  /** Bytes that need no burst of their own: they go first in the next one. */
  pushUnhurried(bytes: Buffer): void {
    if (!this.#shut) this.#unhurried.push(bytes);
  }

  /** Whether there is something that no burst has taken along. */
  get unhurried(): boolean {
    return this.#unhurried.length > 0;
  }

  /** No burst has come: what waited for one goes now. */
  hurry(): void {
    for (const bytes of this.#unhurried.splice(0)) this.push(bytes);
    this.flush();
  }

  /** Keeps what waits for the next flush, but for large amounts, and lets go of the chunks that it lies in. */
  keep(): void {
    if (this.#size > KEEP_UP_TO) {
      this.flush();
      return;
    }
    this.#seal();
    if (this.#slices.length > 0) this.#slices = [Buffer.concat(this.#slices, this.#size)];
  }

  flush(): void {
    if (this.#size === 0 || this.#transport === undefined) return;
    this.#seal();
    if (this.#unhurried.length > 0) this.#takeUnhurried();
    const slices = this.#slices;
    const size = this.#size;
    this.#slices = [];
    this.#size = 0;
    this.#transport.write(slices, size);
  }

  #takeUnhurried(): void {
    for (const bytes of this.#unhurried) this.#size += bytes.length;
    this.#slices.unshift(...this.#unhurried);
    this.#unhurried = [];
  }

  #seal(): void {
    const chunk = this.#chunk;
    if (chunk === undefined) return;
    this.#chunk = undefined;
    const whole = this.#from === 0 && this.#to === chunk.length;
    this.#slices.push(whole ? chunk : chunk.subarray(this.#from, this.#to));
  }
}
