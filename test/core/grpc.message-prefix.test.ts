import { expect, test } from 'vitest';
import { MESSAGE_PREFIX_SIZE, messagePrefix, writeMessagePrefix } from '../../src/core/grpc.ts';

test('the prefix of a message is a zero and its length in four bytes', () => {
  expect([...messagePrefix(0x01020304)]).toEqual([0, 1, 2, 3, 4]);
  const bytes = Buffer.alloc(MESSAGE_PREFIX_SIZE + 2, 0xff);
  writeMessagePrefix(bytes, 1, 7);
  expect([...bytes]).toEqual([0xff, 0, 0, 0, 0, 7, 0xff]);
});
