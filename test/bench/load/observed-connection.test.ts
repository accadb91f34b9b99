import { expect, test } from 'vitest';
import { RequestHeaders } from '../../../bench/client/request-headers.ts';
import { type ObservedCall, ObservedConnection } from '../../../bench/load/observed-connection.ts';
import { messagePrefix } from '../../../src/core/grpc.ts';
import {
  Flag,
  FrameType,
  PREFACE,
  frameHeader,
  headersFrames,
  rstStream,
  settingsFrame,
} from '../../../src/http2/frame.ts';

/** Frames of a client and a server, without sockets. */

const LARGEST = 16_384;
const PATH = '/runtime.v1.RuntimeService/Version';

/** A header block of literals that are not indexed. */
const literals = (fields: Readonly<Record<string, string>>): Buffer =>
  Buffer.concat(
    Object.entries(fields).flatMap(([name, value]) => [
      Buffer.of(0, name.length),
      Buffer.from(name),
      Buffer.of(value.length),
      Buffer.from(value),
    ]),
  );

const data = (id: number, content: Buffer, isEnd = false): Buffer =>
  Buffer.concat([frameHeader(content.length, FrameType.DATA, isEnd ? Flag.END_STREAM : 0, id), content]);

const prefixed = (text: string): Buffer => Buffer.concat([messagePrefix(text.length), Buffer.from(text)]);

function observed(): { connection: ObservedConnection; calls: ObservedCall[]; clock: { now: number } } {
  const calls: ObservedCall[] = [];
  const clock = { now: 0 };
  return {
    connection: new ObservedConnection(
      (call) => calls.push(call),
      () => clock.now,
    ),
    calls,
    clock,
  };
}

const request = (id: number, text: string): Buffer =>
  Buffer.concat([headersFrames(id, new RequestHeaders().next(PATH), false, LARGEST), data(id, prefixed(text), true)]);
const opened = Buffer.concat([PREFACE, settingsFrame([])]);
const trailers = (id: number, status: string): Buffer =>
  headersFrames(id, literals({ 'grpc-status': status, 'grpc-message': 'text' }), true, LARGEST);

test('records a call with its messages, status and times, however its bytes are split', () => {
  const { connection, calls, clock } = observed();
  for (const byte of Buffer.concat([opened, request(1, 'question')])) connection.fromClient(Buffer.of(byte));
  clock.now = 7;
  const message = prefixed('answer');
  const answer = [
    headersFrames(1, literals({ ':status': '200' }), false, LARGEST),
    data(1, message.subarray(0, 3)),
    data(1, message.subarray(3)),
    trailers(1, '0'),
  ];
  for (const byte of Buffer.concat(answer)) connection.fromServer(Buffer.of(byte));
  expect(calls).toEqual([
    {
      ...{ path: PATH, startedAt: 0, endedAt: 7, status: 0, message: 'text' },
      requests: [Buffer.from('question')],
      responses: [Buffer.from('answer')],
    },
  ]);
});

test('a call ends with the status of trailers alone, a reset by the server, or a reset by the client', () => {
  const { connection, calls } = observed();
  connection.fromClient(Buffer.concat([opened, request(1, 'a'), request(3, 'b'), request(5, 'c')]));
  connection.fromServer(Buffer.concat([trailers(1, '5'), rstStream(3, 2)]));
  connection.fromClient(rstStream(5, 8));
  connection.fromServer(trailers(5, '0'));
  expect(calls.map(({ status, responses }) => [status, responses.length])).toEqual([
    [5, 0],
    [2, 0],
    [1, 0],
  ]);
});

test('rejects a compressed message', () => {
  const { connection } = observed();
  connection.fromClient(Buffer.concat([opened, request(1, 'a')]));
  const compressed = prefixed('answer');
  compressed[0] = 1;
  const answer = Buffer.concat([data(1, compressed), trailers(1, '0')]);
  expect(() => connection.fromServer(answer)).toThrow('a message is compressed');
});
