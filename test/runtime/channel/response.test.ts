import { status } from '@grpc/grpc-js';
import { describe, expect, test } from 'vitest';
import { MessageReader, ResponseMemory } from '../../../src/runtime/channel/response.ts';
import { message } from '../../support/http2/wire.ts';

const LIMIT = 100_000;
const readerOf = (memory = new ResponseMemory(1_000_000)): MessageReader => new MessageReader(memory, LIMIT);

test.each([0, 1, 5, 16_384, 16_385, 99_999, LIMIT])('a message of %d bytes is read', (size) => {
  const body = Buffer.alloc(size, 'ab');
  const reader = readerOf();
  expect(reader.take(message(body))).toBeUndefined();
  expect(reader.message).toEqual(body);
});

test('a message is read if it is split at any byte', () => {
  const body = Buffer.from('hello');
  const bytes = message(body);
  for (let at = 0; at <= bytes.length; at += 1) {
    const reader = readerOf();
    reader.take(bytes.subarray(0, at));
    expect(reader.message).toEqual(at === bytes.length ? body : undefined);
    expect(reader.hasBegun).toBe(at > 0);
    reader.take(bytes.subarray(at));
    expect(reader.message).toEqual(body);
  }
});

test('a message is a copy, so that its source buffer can be reused', () => {
  const reader = readerOf();
  const chunk = message(Buffer.from('hello'));
  reader.take(chunk);
  chunk.fill(0xdb);
  expect(reader.message?.toString()).toBe('hello');
});

describe('an invalid response', () => {
  test.each([
    [
      'a second message',
      Buffer.concat([message(Buffer.of(1)), message(Buffer.of(2))]),
      status.INTERNAL,
      'more than one',
    ],
    [
      'one byte after the message',
      Buffer.concat([message(Buffer.of(1)), Buffer.of(0)]),
      status.INTERNAL,
      'more than one',
    ],
    ['a compressed message', message(Buffer.of(1), true), status.INTERNAL, 'compressed'],
    ['another flag', Buffer.of(2, 0, 0, 0, 0), status.INTERNAL, 'compressed flag 2'],
    ['a longer message', Buffer.of(0, 0, 1, 0x86, 0xa1), status.RESOURCE_EXHAUSTED, '100001 vs 100000'],
    ['the longest length', Buffer.of(0, 255, 255, 255, 255), status.RESOURCE_EXHAUSTED, '4294967295 vs 100000'],
  ])('a call ends with an error at %s', (_, bytes, code, details) => {
    expect(readerOf().take(bytes)).toEqual({ code, details: expect.stringContaining(details) as string });
  });
});

describe('memory of responses', () => {
  test('memory for a response is reserved as bytes arrive, not for the announced length', () => {
    const memory = new ResponseMemory(1_000_000);
    const reader = readerOf(memory);
    reader.take(message(Buffer.alloc(LIMIT)).subarray(0, 6));
    expect(memory.used).toBe(16_384);
    reader.close();
    expect(memory.used).toBe(0);
  });

  test('all responses share a memory limit, and a response that exceeds it fails alone', () => {
    const memory = new ResponseMemory(100_000);
    const [first, second, third] = [readerOf(memory), readerOf(memory), readerOf(memory)];
    expect(first.take(message(Buffer.alloc(60_000)))).toBeUndefined();
    expect(second.take(message(Buffer.alloc(60_000)))?.code).toBe(status.RESOURCE_EXHAUSTED);
    expect(third.take(message(Buffer.alloc(1000)))).toBeUndefined();
    for (const reader of [first, second, third]) reader.close();
    expect(memory.used).toBe(0);
  });
});
