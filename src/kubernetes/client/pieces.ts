import type { Readable } from 'node:stream';
import { ApiUnreached } from './errors.ts';

/** A line or an item of a body. */
export interface Piece {
  /** The text. For a piece that is too long, only its first {@link START} bytes. */
  readonly text: string;
  readonly isTooLong: boolean;
}

/** Bytes that are stored of a long piece: enough for an object's names and resource version, which come first. */
const START = 4096;
/** Maximum bytes of a list without its items: kind and resource version. */
const LONGEST_FRAME = 64 * 1024;

const LINE_BREAK = 0x0a;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/** Collects the bytes of one piece, at most `longest`. */
class PieceBuffer {
  #parts: Buffer[] = [];
  #length = 0;

  constructor(private readonly longest: number) {}

  get isEmpty(): boolean {
    return this.#length === 0;
  }

  add(part: Buffer): void {
    const wasTooLong = this.#length > this.longest;
    this.#length += part.length;
    if (wasTooLong || part.length === 0) return;
    this.#parts.push(part);
    if (this.#length > this.longest) this.#parts = [Buffer.concat(this.#parts, START)];
  }

  /** Returns the piece, and begins the next one. */
  take(): Piece {
    const piece = { text: Buffer.concat(this.#parts).toString(), isTooLong: this.#length > this.longest };
    this.#parts = [];
    this.#length = 0;
    return piece;
  }
}

/** Yields the lines of a body as they arrive, without empty ones. Stores at most `longest` bytes of a line. */
export async function* readLines(response: Readable, longest: number): AsyncGenerator<Piece> {
  const line = new PieceBuffer(longest);
  for await (const chunk of response as AsyncIterable<Buffer>) {
    let from = 0;
    for (let end = chunk.indexOf(LINE_BREAK); end !== -1; end = chunk.indexOf(LINE_BREAK, from)) {
      line.add(chunk.subarray(from, end));
      from = end + 1;
      if (!line.isEmpty) yield line.take();
    }
    line.add(chunk.subarray(from));
  }
}

/**
 * Reads a list of the API server, and passes each item on as it arrives, so that the length of the list does not
 * matter. Stores at most `longest` bytes of an item. Returns the list without its items, as JSON.
 */
export async function readItems(response: Readable, longest: number, onItem: (item: Piece) => void): Promise<string> {
  const splitter = new ItemSplitter(longest, onItem);
  for await (const chunk of response as AsyncIterable<Buffer>) splitter.add(chunk);
  return splitter.end();
}

/** Splits a JSON object into items: the objects in its only array at the first level. */
class ItemSplitter {
  readonly #item: PieceBuffer;
  readonly #frame = new PieceBuffer(LONGEST_FRAME);
  #depth = 0;
  #isInString = false;
  #isEscaped = false;
  #isInArray = false;
  #isInItem = false;

  constructor(
    longest: number,
    private readonly onItem: (item: Piece) => void,
  ) {
    this.#item = new PieceBuffer(longest);
  }

  add(chunk: Buffer): void {
    let from = 0;
    /** Adds the bytes since `from` to the item or the frame. */
    const store = (end: number): void => {
      (this.#isInItem ? this.#item : this.#frame).add(chunk.subarray(from, end));
      from = end;
    };
    for (let at = this.#isInString ? this.#afterString(chunk, 0) : 0; at < chunk.length; at += 1) {
      const byte = chunk[at];
      if (byte === QUOTE) at = this.#afterString(chunk, at + 1) - 1;
      else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) this.#open(byte, () => store(at));
      else if (byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) this.#close(() => store(at + 1));
      else if (byte === COMMA && this.#depth === 2 && this.#isInArray) {
        store(at);
        from = at + 1;
      }
    }
    store(chunk.length);
  }

  end(): string {
    const { text, isTooLong } = this.#frame.take();
    if (isTooLong) throw new ApiUnreached(`the list without its items is longer than ${LONGEST_FRAME} bytes`);
    return text;
  }

  /** Returns the index after the string that continues at `start`, or the chunk's length if it does not end. */
  #afterString(chunk: Buffer, start: number): number {
    let isEscaped = this.#isEscaped;
    let at = start;
    let isInString = true;
    for (; isInString && at < chunk.length; at += 1) {
      if (isEscaped) isEscaped = false;
      else if (chunk[at] === BACKSLASH) isEscaped = true;
      else if (chunk[at] === QUOTE) isInString = false;
    }
    this.#isEscaped = isEscaped;
    this.#isInString = isInString;
    return at;
  }

  #open(byte: number, storeBefore: () => void): void {
    if (this.#depth === 1) this.#isInArray = byte === OPEN_ARRAY;
    if (this.#depth === 2 && this.#isInArray) {
      storeBefore();
      this.#isInItem = true;
    }
    this.#depth += 1;
  }

  #close(storeWithIt: () => void): void {
    this.#depth -= 1;
    if (this.#depth !== 2 || !this.#isInItem) return;
    storeWithIt();
    this.#isInItem = false;
    this.onItem(this.#item.take());
  }
}
