import { MiB } from '../../../src/core/quantities/sizes.ts';
import { ConnectionError } from '../../../src/http2/errors.ts';
import { HpackDecoder } from '../../../src/http2/hpack/codec.ts';
import type { HeaderField } from '../../../src/http2/hpack/field.ts';
import { huffmanCodes } from '../../../src/http2/hpack/huffman.ts';
import { staticField } from '../../../src/http2/hpack/static-table.ts';

/** An HPACK encoder that uses all features of the format, as clients do and the shim does not. For tests only. */

const CODES = huffmanCodes();

export function huffman(text: string): Buffer {
  const bits = Array.from(Buffer.from(text, 'latin1'), (octet) => {
    const { code, length } = CODES[octet]!;
    return code.toString(2).padStart(length, '0');
  }).join('');
  const padded = bits.padEnd(Math.ceil(bits.length / 8) * 8, '1');
  return Buffer.from((padded.match(/.{8}/g) ?? []).map((octet) => Number.parseInt(octet, 2)));
}

export interface Field {
  readonly name: string;
  readonly value: string;
  readonly sensitive?: boolean;
  readonly huffman?: boolean;
  /** Whether to add it to the dynamic table. */
  readonly index?: boolean;
}

function integer(value: number, prefix: number, pattern: number): number[] {
  const full = 2 ** prefix - 1;
  if (value < full) return [pattern | value];
  const octets = [pattern | full];
  let rest = value - full;
  while (rest > 127) {
    octets.push(128 + (rest % 128));
    rest = Math.floor(rest / 128);
  }
  return [...octets, rest];
}

function text(value: string, coded: boolean): number[] {
  const bytes = coded ? huffman(value) : Buffer.from(value, 'latin1');
  return [...integer(bytes.length, 7, coded ? 0x80 : 0), ...bytes];
}

export class ReferenceEncoder {
  #table: { name: string; value: string }[] = [];
  #capacity: number;

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  /** @param tableSize a size update to put first */
  encode(fields: readonly Field[], tableSize?: number): Buffer {
    const octets: number[] = [];
    if (tableSize !== undefined) {
      this.#capacity = tableSize;
      this.#evict();
      octets.push(...integer(tableSize, 5, 0x20));
    }
    for (const field of fields) octets.push(...this.#field(field));
    return Buffer.from(octets);
  }

  #field({ name, value, sensitive = false, huffman: coded = false, index = false }: Field): number[] {
    const all = [...Array.from({ length: 61 }, (_, at) => staticField(at + 1)!), ...this.#table];
    const whole = all.findIndex((entry) => entry.name === name && entry.value === value);
    if (whole !== -1 && !sensitive) return integer(whole + 1, 7, 0x80);
    const named = all.findIndex((entry) => entry.name === name) + 1;
    const prefix = index && !sensitive ? integer(named, 6, 0x40) : integer(named, 4, sensitive ? 0x10 : 0);
    const octets = [...prefix, ...(named === 0 ? text(name, coded) : []), ...text(value, coded)];
    if (index && !sensitive) {
      this.#table.unshift({ name, value });
      this.#evict();
    }
    return octets;
  }

  #evict(): void {
    const size = (): number => this.#table.reduce((sum, { name, value }) => sum + name.length + value.length + 32, 0);
    while (size() > this.#capacity) this.#table.pop();
  }
}

export type Pairs = [name: string, value: string][];

export const hex = (text: string): Buffer => Buffer.from(text.replaceAll(/\s/g, ''), 'hex');
export const pairs = (fields: readonly HeaderField[]): Pairs => fields.map(({ name, value }) => [name, value]);
export const decoderOf = (table = 4096): HpackDecoder => new HpackDecoder(table, MiB);

/** Returns the entries of a decoder's dynamic table, newest first. Reads them by index, as a peer would. */
export function tableOf(decoder: HpackDecoder): Pairs {
  const found: Pairs = [];
  for (let index = 62; ; index += 1) {
    try {
      found.push(...pairs(decoder.decode(hex((0x80 | index).toString(16)))));
    } catch {
      return found;
    }
  }
}

/** Returns the code of the ConnectionError that an action throws, or undefined if it does not throw. */
export function errorCodeOf(action: () => unknown): number | undefined {
  try {
    action();
  } catch (error) {
    if (error instanceof ConnectionError) return error.code;
    throw error;
  }
  return undefined;
}
