import type { Transport } from './transport.ts';

/**
 * What goes to one side during one burst of input. Slices that lie behind one another in the same chunk become one, so that
 * frames that pass unchanged leave as they came: in one write, without a copy.
 */
export class Outbox {
  #transport: Transport | undefined;
  #shut = false;
  #slices: Buffer[] = [];
  #size = 0;
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
    this.flush();
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

  flush(): void {
    if (this.#size === 0 || this.#transport === undefined) return;
    this.#seal();
    const slices = this.#slices;
    const size = this.#size;
    this.#slices = [];
    this.#size = 0;
    this.#transport.write(slices, size);
  }

  #seal(): void {
    const chunk = this.#chunk;
    if (chunk === undefined) return;
    this.#chunk = undefined;
    const whole = this.#from === 0 && this.#to === chunk.length;
    this.#slices.push(whole ? chunk : chunk.subarray(this.#from, this.#to));
  }
}
