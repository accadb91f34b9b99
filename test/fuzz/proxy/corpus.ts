import type { Field } from '../../support/http2/reference-hpack.ts';
import { ReferenceEncoder } from '../../support/http2/reference-hpack.ts';
import {
  CONTINUATION,
  DATA,
  data,
  END_HEADERS,
  frame,
  GOAWAY,
  HEADERS,
  headers,
  message,
  OK,
  PADDED,
  PING,
  PREFACE,
  PRIORITY,
  RESPONSE,
  request,
  rst,
  SETTINGS_ACK,
  settings,
  u32,
  windowUpdate,
} from '../../support/http2/wire.ts';

export type FuzzSide = 'client' | 'backend' | 'local';

/** Complete frames that a side sends at once. */
export interface Step {
  readonly side: FuzzSide;
  readonly bytes: Buffer;
}

/** A valid conversation. */
export type Conversation = readonly Step[];

const client = (...bytes: Buffer[]): Step => ({ side: 'client', bytes: Buffer.concat(bytes) });
const backend = (...bytes: Buffer[]): Step => ({ side: 'backend', bytes: Buffer.concat(bytes) });
const local = (...bytes: Buffer[]): Step => ({ side: 'local', bytes: Buffer.concat(bytes) });

/** Returns an encoder of requests like those of Go and Node: with a dynamic table, Huffman-coded. */
function busyClient(): (id: number, path: string, last: boolean, extra?: readonly Field[]) => Buffer {
  const encoder = new ReferenceEncoder(4096);
  return (id, path, last, extra = []) => {
    const fields = request(path, [{ name: 'user-agent', value: 'grpc-go/1.80.0' }, ...extra]);
    const block = encoder.encode(fields.map((field) => ({ ...field, huffman: true, index: true })));
    return frame(HEADERS, END_HEADERS | (last ? 1 : 0), id, block);
  };
}

const handshake: Conversation = [client(PREFACE, settings()), backend(settings(), SETTINGS_ACK), client(SETTINGS_ACK)];
const answer = (id: number, bytes: Buffer): Buffer[] => [
  headers(id, RESPONSE),
  data(id, message(bytes)),
  headers(id, OK, true),
];

function ordinary(): Conversation {
  const open = busyClient();
  const call = (id: number, path: string): Buffer[] => [
    open(id, path, false, [{ name: 'grpc-timeout', value: `${id}999m` }]),
    data(id, message(Buffer.from(`request ${id}`)), true),
  ];
  return [
    client(PREFACE, settings([1, 4096], [4, 65_535], [6, 16_384])),
    backend(settings([5, 16_384]), windowUpdate(0, 100_000), SETTINGS_ACK),
    client(SETTINGS_ACK, ...call(1, '/pass/Version')),
    backend(...answer(1, Buffer.alloc(100, 'v')), frame(PING, 0, 0, Buffer.alloc(8, 'p'))),
    client(frame(PING, 0, 0, Buffer.alloc(8, 'q')), windowUpdate(0, 105), ...call(3, '/handle/Update')),
    local(settings([4, 70_000]), SETTINGS_ACK, ...answer(3, Buffer.alloc(300, 'u'))),
    client(...call(5, '/amend/Status'), ...call(7, '/pass/List')),
    backend(headers(5, RESPONSE), data(5, message(Buffer.alloc(50, 's')).subarray(0, 20))),
    backend(headers(7, RESPONSE), data(7, Buffer.alloc(2000, 'l'))),
    backend(data(5, message(Buffer.alloc(50, 's')).subarray(20)), headers(5, OK, true), headers(7, OK, true)),
    client(windowUpdate(0, 2000), frame(GOAWAY, 0, 0, u32(0, 0))),
  ];
}

function rareForms(): Conversation {
  const block = headers(1, request('/pass/Rare')).subarray(9);
  const padded = Buffer.concat([Buffer.of(3), block, Buffer.alloc(3)]);
  return [
    ...handshake,
    client(
      frame(HEADERS, 0, 1, block.subarray(0, 10)),
      frame(CONTINUATION, 0, 1, block.subarray(10, 20)),
      frame(CONTINUATION, END_HEADERS, 1, block.subarray(20)),
      frame(HEADERS, END_HEADERS | PADDED, 3, padded),
      frame(HEADERS, END_HEADERS | 0x20, 5, Buffer.concat([Buffer.alloc(5), block])),
      frame(PRIORITY, 0, 5, Buffer.alloc(5)),
      frame(DATA, PADDED, 1, Buffer.concat([Buffer.of(4), message(Buffer.from('padded')), Buffer.alloc(4)])),
      headers(3, [{ name: 'x-trailer', value: 'yes' }], true),
      rst(5, 8),
      frame(0x42, 0xff, 1, Buffer.alloc(12)),
    ),
    backend(
      frame(HEADERS, 0, 1, headers(1, RESPONSE).subarray(9)),
      frame(CONTINUATION, END_HEADERS, 1),
      frame(DATA, PADDED, 1, Buffer.concat([Buffer.of(9), Buffer.alloc(30), Buffer.alloc(9)])),
      headers(1, OK, true),
      rst(1, 0),
      headers(3, [...RESPONSE, { name: 'grpc-status', value: '5' }], true),
    ),
  ];
}

function smallWindows(): Conversation {
  const held = message(Buffer.alloc(3000, 'h'));
  return [
    client(PREFACE, settings([4, 100], [5, 20_000])),
    backend(settings([4, 50]), SETTINGS_ACK),
    client(SETTINGS_ACK, headers(1, request('/amend/Large')), data(1, message(Buffer.alloc(20)), true)),
    client(headers(3, request('/handle/Stream')), headers(5, request('/pass/Stream'))),
    backend(headers(1, RESPONSE), data(1, held.subarray(0, 100))),
    local(settings([4, 10]), headers(3, RESPONSE), data(3, Buffer.alloc(500, 'x'))),
    client(data(3, Buffer.alloc(60, 'u')), settings([4, 10])),
    backend(data(1, held.subarray(100, 2000)), headers(5, RESPONSE), data(5, Buffer.alloc(90)), SETTINGS_ACK),
    client(windowUpdate(1, 1000), windowUpdate(3, 300), windowUpdate(0, 5000), settings([4, 5000])),
    backend(SETTINGS_ACK, data(1, held.subarray(2000)), headers(1, OK, true), windowUpdate(5, 1000)),
    local(windowUpdate(3, 500), windowUpdate(0, 500), headers(3, OK, true)),
    client(windowUpdate(1, 3000), data(5, Buffer.alloc(800), true), windowUpdate(5, 90)),
    backend(headers(5, OK, true)),
  ];
}

function graceful(): Conversation {
  return [
    ...handshake,
    client(headers(1, request('/pass/A')), headers(3, request('/handle/B')), headers(5, request('/pass/C'), true)),
    backend(headers(1, RESPONSE), frame(GOAWAY, 0, 0, Buffer.concat([u32(1, 0), Buffer.from('bye')]))),
    client(headers(7, request('/handle/D'), true), data(1, Buffer.alloc(10), true)),
    local(settings(), headers(3, RESPONSE), frame(GOAWAY, 0, 0, u32(3, 0)), headers(3, OK, true)),
    backend(headers(1, OK, true)),
    client(data(3, Buffer.alloc(10), true), rst(3, 8)),
  ];
}

function events(): Conversation {
  const wire = Buffer.concat([
    message(Buffer.alloc(300, 'a')),
    message(Buffer.alloc(0)),
    message(Buffer.alloc(30, 'c'), true),
    message(Buffer.alloc(2500, 'd')),
    message(Buffer.alloc(21_000, 'e')),
    message(Buffer.alloc(40, 'f')),
  ]);
  return [
    ...handshake,
    client(settings([4, 900]), headers(1, request('/each/Watch')), data(1, message(Buffer.alloc(0)), true)),
    client(headers(3, request('/each/Events'), true)),
    backend(SETTINGS_ACK, headers(1, RESPONSE), data(1, wire.subarray(0, 200)), data(1, wire.subarray(200, 400))),
    backend(headers(3, RESPONSE), data(3, wire.subarray(0, 900), true)),
    client(windowUpdate(1, 30_000), windowUpdate(3, 500)),
    backend(data(1, wire.subarray(400, 3000)), frame(DATA, PADDED, 1, Buffer.concat([Buffer.of(4), Buffer.alloc(4)]))),
    backend(data(1, wire.subarray(3000, 19_000)), data(1, wire.subarray(19_000))),
    client(windowUpdate(0, 40_000), rst(3, 8)),
    backend(headers(1, OK, true)),
  ];
}

function manyCalls(): Conversation {
  const open = busyClient();
  const ids = Array.from({ length: 12 }, (_, index) => 2 * index + 1);
  const route = ['pass', 'amend', 'handle'];
  return [
    ...handshake,
    client(
      ...ids.flatMap((id) => [open(id, `/${route[id % 3]!}/Many`, false), data(id, message(Buffer.alloc(id)), true)]),
    ),
    backend(...ids.filter((id) => id % 3 !== 2).flatMap((id) => answer(id, Buffer.alloc(100 * id, 'm')))),
    local(settings(), SETTINGS_ACK, ...ids.filter((id) => id % 3 === 2).flatMap((id) => answer(id, Buffer.alloc(50)))),
    client(windowUpdate(0, 10_000), ...ids.slice(0, 4).map((id) => rst(id, 8))),
  ];
}

export const CORPUS: readonly Conversation[] = [
  ordinary(),
  rareForms(),
  smallWindows(),
  graceful(),
  events(),
  manyCalls(),
];
