import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { MessageBuffer, type Piece } from '../../../src/server/proxy/message-buffer.ts';
import { message } from '../../support/http2/wire.ts';

const LIMIT = 300;

const taken = (buffer: MessageBuffer): Piece[] => {
  const pieces: Piece[] = [];
  for (let piece = buffer.take(); piece !== undefined; piece = buffer.take()) pieces.push(piece);
  return pieces;
};

/** Cuts bytes into parts of these lengths, again and again. */
function cut(bytes: Buffer, lengths: readonly number[]): Buffer[] {
  const parts: Buffer[] = [];
  for (let at = 0, index = 0; at < bytes.length; index += 1) {
    const length = lengths[index % lengths.length]!;
    parts.push(bytes.subarray(at, at + length));
    at += length;
  }
  return parts;
}

const sent = fc.record({
  content: fc.uint8Array({ maxLength: 2 * LIMIT }),
  compressed: fc.boolean(),
});
const lengths = fc.array(fc.oneof(fc.integer({ min: 1, max: 9 }), fc.integer({ min: 1, max: 1500 })), { minLength: 1 });

describe('MessageBuffer', () => {
  test('A13: a stream is split into the same messages wherever its bytes are cut', () => {
    fc.assert(
      fc.property(fc.array(sent), lengths, (messages, cuts) => {
        const buffer = new MessageBuffer(LIMIT);
        const pieces: Piece[] = [];
        const all = messages.map(({ content, compressed }) => message(content, compressed));
        for (const part of cut(Buffer.concat(all), cuts)) {
          const read = Buffer.from(part);
          buffer.add(read);
          // The memory of a read is used again.
          read.fill(0xdb);
          pieces.push(...taken(buffer));
        }
        expect(Buffer.concat(pieces.map(({ bytes }) => bytes))).toEqual(Buffer.concat(all));
        const usable = all.filter((bytes) => bytes[0] === 0 && bytes.length <= LIMIT + 5);
        expect(pieces.filter(({ kind }) => kind === 'message').map(({ bytes }) => bytes)).toEqual(usable);
        const begun = pieces.filter((piece) => piece.kind === 'pass' && piece.begins);
        expect(begun).toHaveLength(all.length - usable.length);
        expect(buffer.size).toBe(0);
      }),
    );
  });

  test('a message that cannot be held is forwarded in parts, and the next one is whole', () => {
    const buffer = new MessageBuffer(LIMIT);
    const [first, second] = [message(Buffer.alloc(200, 'a')), message(Buffer.alloc(20, 'b'))];
    buffer.add(first.subarray(0, 100));
    expect(buffer.take()).toBeUndefined();
    expect(buffer.missing).toBe(105);
    buffer.pass();
    expect(taken(buffer)).toEqual([{ kind: 'pass', bytes: first.subarray(0, 100), begins: false }]);
    buffer.add(Buffer.concat([first.subarray(100), second]));
    expect(taken(buffer)).toEqual([
      { kind: 'pass', bytes: first.subarray(100), begins: false },
      { kind: 'message', bytes: second },
    ]);
  });

  test('the rest of a stream that ends within a message can be taken', () => {
    const buffer = new MessageBuffer(LIMIT);
    buffer.add(message(Buffer.alloc(9)).subarray(0, 3));
    expect([buffer.take(), buffer.missing]).toEqual([undefined, 2]);
    buffer.add(message(Buffer.alloc(9)).subarray(3, 10));
    expect([buffer.take(), buffer.missing]).toEqual([undefined, 4]);
    expect(buffer.takeRest()).toEqual(message(Buffer.alloc(9)).subarray(0, 10));
    expect([buffer.size, buffer.take()]).toEqual([0, undefined]);
  });
});
