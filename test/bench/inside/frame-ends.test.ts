import { expect, test } from 'vitest';
import { HeadersFinder } from '../../../bench/inside/frame-ends.ts';

function frame(type: number, flags: number, streamId: number, length: number): Buffer {
  const bytes = Buffer.alloc(9 + length, 0xff);
  bytes.writeUIntBE(length, 0, 3);
  bytes.writeUInt8(type, 3);
  bytes.writeUInt8(flags, 4);
  bytes.writeUInt32BE(streamId, 5);
  return bytes;
}

const connection = Buffer.concat([
  Buffer.from('PREFACE'),
  frame(4, 0, 0, 6),
  frame(1, 4, 1, 40),
  frame(0, 1, 1, 0),
  frame(1, 5, 3, 12),
]);

test.each([1, 2, 9, 10, 1000])('HEADERS frames are found in chunks of %d bytes', (size) => {
  const found: (readonly [number, boolean])[] = [];
  const finder = new HeadersFinder('PREFACE'.length, (...one) => found.push(one));
  for (let at = 0; at < connection.length; at += size) finder.push(connection.subarray(at, at + size));
  expect(found).toEqual([
    [1, false],
    [3, true],
  ]);
});
