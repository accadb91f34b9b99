import { ConnectionError } from '../../../src/http2/errors.ts';
import { HpackDecoder } from '../../../src/http2/hpack/codec.ts';
import type { HeaderField } from '../../../src/http2/hpack/field.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';

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
