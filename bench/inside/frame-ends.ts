/** The frames of HTTP/2 that begin and end a call (RFC 9113 4.1 and 6.2). */
const HEADER_SIZE = 9;
const HEADERS = 1;
const END_STREAM = 0x1;

/** Finds HEADERS frames in one direction of a connection, in chunks of any size. */
export class HeadersFinder {
  readonly #header = Buffer.alloc(HEADER_SIZE);
  /** Number of bytes of the next frame's header that have arrived. */
  #have = 0;
  /** Bytes until the next frame's header. */
  #skip: number;

  /**
   * @param preface bytes before the first frame
   * @param found gets the stream of each HEADERS frame, and whether it ends the stream
   */
  constructor(
    preface: number,
    private readonly found: (streamId: number, isEnd: boolean) => void,
  ) {
    this.#skip = preface;
  }

  push(chunk: Uint8Array): void {
    for (let at = 0; at < chunk.length; ) {
      const skipped = Math.min(this.#skip, chunk.length - at);
      this.#skip -= skipped;
      at += skipped;
      const part = chunk.subarray(at, at + HEADER_SIZE - this.#have);
      this.#header.set(part, this.#have);
      this.#have += part.length;
      at += part.length;
      if (this.#have < HEADER_SIZE) continue;
      this.#have = 0;
      this.#skip = this.#header.readUIntBE(0, 3);
      if (this.#header[3] === HEADERS)
        this.found(this.#header.readUInt32BE(5) & 0x7fffffff, ((this.#header[4] ?? 0) & END_STREAM) !== 0);
    }
  }
}
