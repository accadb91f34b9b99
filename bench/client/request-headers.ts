/**
 * Request headers as kubelet's grpc-go client sends them: after the first call, all headers are in the dynamic table,
 * so that the block of a call has eight bytes. (grpc-go rounds the rest of kubelet's two minutes up to whole
 * milliseconds, so that even grpc-timeout is the same every time.) Literals outside the table would spare the shim work
 * that it has in production.
 */

/** Names in the static table (RFC 7541 appendix A) with their index. */
const staticNames: ReadonlyMap<string, number> = new Map([
  [':authority', 1],
  [':path', 4],
  ['content-type', 31],
  ['user-agent', 58],
]);
const POST = 0x83;
const HTTP = 0x86;
const FIRST_DYNAMIC_INDEX = 62;
/** Indexes from here on take more than one byte. */
const LARGEST_SHORT_INDEX = 126;

/** The encoder of one connection. */
export class RequestHeaders {
  /** The number of fields in the table when this one was added. */
  readonly #positions = new Map<string, number>();

  /** Returns the header block of the next request for this path. */
  next(path: string): Buffer {
    const fields: readonly (readonly [name: string, value: string])[] = [
      [':path', path],
      [':authority', 'localhost'],
      ['content-type', 'application/grpc'],
      ['user-agent', 'grpc-go/1.72.2'],
      ['te', 'trailers'],
      ['grpc-timeout', '120000m'],
    ];
    return Buffer.concat([Buffer.of(POST, HTTP), ...fields.map(([name, value]) => this.#field(name, value))]);
  }

  /**
   * Whether all fields of the block of this path are in the table, so that the block stays the same until a new path is
   * added.
   */
  knows(path: string): boolean {
    return this.#positions.has(`:path ${path}`);
  }

  #field(name: string, value: string): Buffer {
    const key = `${name} ${value}`;
    const position = this.#positions.get(key);
    if (position !== undefined) {
      return Buffer.of(0x80 | (FIRST_DYNAMIC_INDEX + this.#positions.size - 1 - position));
    }
    // The default table of 4096 bytes holds more fields than a one-byte index reaches.
    if (FIRST_DYNAMIC_INDEX + this.#positions.size > LARGEST_SHORT_INDEX) throw new RangeError('too many methods');
    this.#positions.set(key, this.#positions.size);
    const nameIndex = staticNames.get(name);
    const start = nameIndex === undefined ? [Buffer.of(0x40), text(name)] : [Buffer.of(0x40 | nameIndex)];
    return Buffer.concat([...start, text(value)]);
  }
}

function text(value: string): Buffer {
  if (value.length > 126) throw new RangeError(`${value} is too long`);
  return Buffer.concat([Buffer.of(value.length), Buffer.from(value, 'latin1')]);
}
