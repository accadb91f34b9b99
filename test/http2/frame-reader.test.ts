import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ConnectionError } from '../../src/http2/errors.ts';
import { headersFrames } from '../../src/http2/frame.ts';
import {
  FrameReader,
  HEADERS_COST,
  HeaderAssembly,
  type HeaderBlock,
  type TurnCosts,
} from '../../src/http2/frame-reader.ts';
import type { SeenFrame } from '../support/http2/wire.ts';
import { frame } from '../support/http2/wire.ts';

const anyFrame = fc.record({
  type: fc.integer({ min: 0, max: 255 }),
  flags: fc.integer({ min: 0, max: 255 }),
  id: fc.integer({ min: 0, max: 2 ** 31 - 1 }),
  payload: fc.oneof(
    fc.uint8Array({ maxLength: 40 }),
    fc.integer({ min: 0, max: 3000 }).map((length) => new Uint8Array(length).fill(length)),
  ),
});

/** Splits bytes at these places. Places may be in any order, and repeat. */
function cut(bytes: Buffer, places: readonly number[]): Buffer[] {
  const sorted = [...places.map((place) => place % (bytes.length + 1)), bytes.length].sort((a, b) => a - b);
  return sorted.map((end, index) => bytes.subarray(sorted[index - 1] ?? 0, end));
}

function reading(
  onFrame?: (reader: FrameReader) => void,
  costs?: TurnCosts,
): { reader: FrameReader; seen: SeenFrame[] } {
  const seen: SeenFrame[] = [];
  const reader = new FrameReader((read) => {
    seen.push({
      type: read.type,
      flags: read.flags,
      id: read.streamId,
      payload: Buffer.from(read.buffer.subarray(read.payload, read.end)),
    });
    onFrame?.(reader);
  }, costs);
  return { reader, seen };
}

describe('frame reader', () => {
  test('returns the same frames for any split into chunks', () => {
    fc.assert(
      fc.property(
        fc.array(anyFrame, { maxLength: 12 }),
        fc.array(fc.nat(40_000), { maxLength: 30 }),
        (sent, places) => {
          const { reader, seen } = reading();
          const bytes = Buffer.concat(sent.map(({ type, flags, id, payload }) => frame(type, flags, id, payload)));
          for (const chunk of cut(bytes, places)) reader.push(chunk);
          expect(seen).toEqual(sent.map((one) => ({ ...one, payload: Buffer.from(one.payload) })));
          expect(reader.pending).toBe(0);
        },
      ),
    );
  });

  test('returns the same frames if it pauses, and no more frames per turn than their cost allows', () => {
    fc.assert(
      fc.property(
        fc.array(anyFrame, { maxLength: 12 }),
        fc.array(fc.nat(40_000), { maxLength: 5 }),
        fc.integer({ min: 1, max: 20 }),
        (sent, places, turnCost) => {
          const { reader, seen } = reading(undefined, { turn: turnCost, headers: HEADERS_COST });
          const bytes = Buffer.concat(sent.map(({ type, flags, id, payload }) => frame(type, flags, id, payload)));
          for (const chunk of cut(bytes, places)) {
            const before = seen.length;
            reader.push(chunk);
            // The previous chunk may have contained the start of one more frame.
            expect(seen.length - before).toBeLessThanOrEqual(turnCost + 1);
            chunk.fill(0xdb);
          }
          while (reader.paused) reader.resume();
          expect(seen).toEqual(sent.map((one) => ({ ...one, payload: Buffer.from(one.payload) })));
          expect([reader.stopped, reader.pending]).toEqual([false, 0]);
        },
      ),
    );
  });

  test('reads frames that arrive octet by octet', () => {
    const { reader, seen } = reading();
    for (const octet of Buffer.concat([frame(0, 1, 1, Buffer.from('abc')), frame(6, 0, 0, Buffer.alloc(8))]))
      reader.push(Buffer.of(octet));
    expect(seen.map(({ type, payload }) => [type, payload.length])).toEqual([
      [0, 3],
      [6, 8],
    ]);
  });

  test('stops after any frame, stores the following bytes, and resumes', () => {
    fc.assert(
      fc.property(fc.array(anyFrame, { maxLength: 8 }), fc.array(fc.nat(9000), { maxLength: 20 }), (sent, places) => {
        const { reader, seen } = reading((own) => own.stop());
        const bytes = Buffer.concat(sent.map(({ type, flags, id, payload }) => frame(type, flags, id, payload)));
        for (const chunk of cut(bytes, places)) reader.push(chunk);
        expect(seen.length).toBe(Math.min(1, sent.length));
        for (let count = 2; count <= sent.length; count += 1) {
          reader.resume();
          expect(seen.length).toBe(count);
        }
        expect(seen.map(({ type }) => type)).toEqual(sent.map(({ type }) => type));
      }),
    );
  });

  test('ignores the reserved bit of the stream id', () => {
    const { reader, seen } = reading();
    const bytes = frame(0, 0, 5);
    bytes[5]! |= 0x80;
    reader.push(bytes);
    expect(seen[0]!.id).toBe(5);
  });

  test('rejects a frame that is too long as soon as its header is complete', () => {
    for (const size of [4, 9, 12]) {
      const { reader } = reading();
      const bytes = frame(0, 0, 1, Buffer.alloc(16_385));
      expect(() => {
        reader.push(bytes.subarray(0, size));
        reader.push(bytes.subarray(size, 9));
      }).toThrow(ConnectionError);
    }
    const { reader, seen } = reading();
    reader.push(frame(0, 0, 1, Buffer.alloc(16_384)));
    expect(seen).toHaveLength(1);
  });
});

test('a header block of several frames is not kept for the next one', () => {
  const assembly = new HeaderAssembly(100_000);
  const blocks: HeaderBlock[] = [];
  const reader = new FrameReader((frame) => {
    const block = assembly.take(frame);
    if (block !== undefined) blocks.push(block);
  });
  for (const [id, size] of [
    [1, 40_000],
    [3, 5],
    [5, 40_000],
  ] as const)
    reader.push(headersFrames(id, Buffer.alloc(size, id), true, 16_384));
  expect(new Set(blocks).size).toBe(3);
  expect(blocks.map(({ block }) => block.length)).toEqual([40_000, 5, 40_000]);
  expect([blocks[0]?.block[0], blocks[2]?.block[0]]).toEqual([1, 5]);
});
