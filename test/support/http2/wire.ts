import { setImmediate as nextTurn } from 'node:timers/promises';
import { frameHeader } from '../../../src/http2/frame.ts';
import { HpackDecoder } from '../../../src/http2/hpack/codec.ts';
import { ProxyConnection } from '../../../src/server/proxy/connection.ts';
import {
  type Interception,
  NO_OBSERVER,
  type ProxyObserver,
  type Route,
} from '../../../src/server/proxy/interception.ts';
import type { ProxyConnectionOptions } from '../../../src/server/proxy/options.ts';
import { LIMITS, SHARED_LIMITS } from '../../../src/server/proxy/serve.ts';
import { SharedBudget } from '../../../src/server/proxy/shared-budget.ts';
import type { Transport, TransportEvents } from '../../../src/server/proxy/transport.ts';
import type { Field } from './reference-hpack.ts';
import { ReferenceEncoder } from './reference-hpack.ts';

/** A proxy connection under test: transports in memory, frames written and read by hand. */

export const DATA = 0;
export const HEADERS = 1;
export const PRIORITY = 2;
export const RST_STREAM = 3;
export const SETTINGS = 4;
export const PUSH_PROMISE = 5;
export const PING = 6;
export const GOAWAY = 7;
export const WINDOW_UPDATE = 8;
export const CONTINUATION = 9;

export const END_STREAM = 1;
export const ACK = 1;
export const END_HEADERS = 4;
export const PADDED = 8;

export interface SeenFrame {
  readonly type: number;
  readonly flags: number;
  readonly id: number;
  readonly payload: Buffer;
}

/** Splits bytes into frames. Independent of the proxy's reader, so that an error in the reader is noticed. */
export function parseFrames(bytes: Buffer): { frames: SeenFrame[]; rest: Buffer } {
  const frames: SeenFrame[] = [];
  let at = 0;
  while (bytes.length - at >= 9) {
    const length = bytes.readUIntBE(at, 3);
    if (bytes.length - at < 9 + length) break;
    frames.push({
      type: bytes[at + 3]!,
      flags: bytes[at + 4]!,
      id: bytes.readUInt32BE(at + 5) & 0x7fffffff,
      payload: Buffer.from(bytes.subarray(at + 9, at + 9 + length)),
    });
    at += 9 + length;
  }
  return { frames, rest: bytes.subarray(at) };
}

export function frame(type: number, flags: number, id: number, payload: Uint8Array = Buffer.alloc(0)): Buffer {
  return Buffer.concat([frameHeader(payload.length, type, flags, id), payload]);
}

export function u32(...values: number[]): Buffer {
  const bytes = Buffer.alloc(4 * values.length);
  values.forEach((value, index) => bytes.writeUInt32BE(value, 4 * index));
  return bytes;
}

export function settings(...pairs: [id: number, value: number][]): Buffer {
  const payload = Buffer.concat(pairs.map(([id, value]) => Buffer.concat([Buffer.of(id >> 8, id & 255), u32(value)])));
  return frame(SETTINGS, 0, 0, payload);
}

export const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
export const SETTINGS_ACK = frame(SETTINGS, ACK, 0);
export const data = (id: number, payload: Uint8Array, last = false): Buffer =>
  frame(DATA, last ? END_STREAM : 0, id, payload);
export const windowUpdate = (id: number, bytes: number): Buffer => frame(WINDOW_UPDATE, 0, id, u32(bytes));
export const goaway = (last: number, code: number): Buffer => frame(GOAWAY, 0, 0, u32(last, code));
export const rst = (id: number, code: number): Buffer => frame(RST_STREAM, 0, id, u32(code));

/** Returns a gRPC message with its prefix. */
export function message(bytes: Uint8Array, compressed = false): Buffer {
  return Buffer.concat([Buffer.of(compressed ? 1 : 0), u32(bytes.length), bytes]);
}

export function request(path: string, extra: readonly Field[] = []): Field[] {
  return [
    { name: ':method', value: 'POST' },
    { name: ':scheme', value: 'http' },
    { name: ':path', value: path },
    { name: ':authority', value: 'localhost' },
    { name: 'content-type', value: 'application/grpc' },
    { name: 'te', value: 'trailers' },
    ...extra,
  ];
}

const plain = (fields: readonly Field[]): Buffer => new ReferenceEncoder(0).encode(fields);

/** HEADERS that do not use a dynamic table. */
export function headers(id: number, fields: readonly Field[], last = false): Buffer {
  return frame(HEADERS, END_HEADERS | (last ? END_STREAM : 0), id, plain(fields));
}

export const RESPONSE: readonly Field[] = [
  { name: ':status', value: '200' },
  { name: 'content-type', value: 'application/grpc' },
];
export const OK: readonly Field[] = [{ name: 'grpc-status', value: '0' }];

/** One side of the proxy. */
export class FakeTransport implements Transport {
  readonly events: TransportEvents;
  backlog = 0;
  paused = false;
  ended = false;
  destroyed = false;
  writes = 0;
  /** All output that has not been taken yet. */
  #written: Buffer[] = [];

  constructor(events: TransportEvents) {
    this.events = events;
  }

  write(slices: readonly Buffer[], size: number): void {
    if (this.ended || this.destroyed) throw new Error('written after the end');
    const bytes = Buffer.concat(slices);
    if (bytes.length !== size) throw new Error(`wrote ${bytes.length} bytes and reported ${size}`);
    this.writes += 1;
    this.#written.push(bytes);
  }

  pause(): void {
    this.paused = true;
  }

  resume(): void {
    this.paused = false;
  }

  end(): void {
    this.ended = true;
  }

  destroy(): void {
    this.destroyed = true;
  }

  /** Returns the bytes written since the last call. */
  takeBytes(): Buffer {
    const bytes = Buffer.concat(this.#written);
    this.#written = [];
    return bytes;
  }

  /** Returns the frames written since the last call. Throws if one is incomplete. */
  take(): SeenFrame[] {
    const bytes = this.takeBytes();
    const { frames, rest } = parseFrames(bytes.indexOf(PREFACE) === 0 ? bytes.subarray(PREFACE.length) : bytes);
    if (rest.length > 0) throw new Error('a partial frame was written');
    return frames;
  }

  /** Sends bytes to the proxy. Overwrites them, as a read would, once the proxy reports that it is done. */
  send(...chunks: Uint8Array[]): void {
    const chunk = Buffer.concat(chunks);
    if (this.events.data(chunk)) chunk.fill(0xdb);
  }
}

export interface TestProxy {
  readonly core: ProxyConnection;
  readonly client: FakeTransport;
  readonly backend: FakeTransport;
  readonly locals: FakeTransport[];
  /** The observer's events, as text. */
  readonly events: string[];
  /** Milliseconds. */
  clock: number;
}

export interface TestProxyOptions extends Partial<Omit<ProxyConnectionOptions, 'interception' | 'observer'>> {
  readonly route?: (path: string) => Route;
  readonly amend?: Interception['amend'];
  readonly prepare?: NonNullable<Interception['prepare']>;
  readonly amendMessage?: Interception['amendMessage'];
  readonly isDelayed?: (path: string) => boolean;
  readonly delay?: NonNullable<Interception['delay']>;
}

/** Returns the route that a path begins with. */
export function routeOf(path: string): Route {
  if (path.startsWith('/handle')) return 'handle';
  if (path.startsWith('/each')) return 'amend-each';
  return path.startsWith('/amend') ? 'amend' : 'pass';
}

/** Returns a budget in which each connection holds no more than this for amendments. */
export const holdingUpTo = (bytes: number): SharedBudget =>
  new SharedBudget({ ...SHARED_LIMITS, held: { reserved: bytes, all: 0 } });

export function startProxy(options: TestProxyOptions = {}): TestProxy {
  const events: string[] = [];
  const observer: ProxyObserver = {
    ...NO_OBSERVER,
    wantsStatus: true,
    streamClosed: (path, route, outcome, status) => events.push(`${path} ${route} ${outcome} ${status}`),
    protocolError: (side, code, text) => events.push(`error ${side} ${code} ${text}`),
    amendSkipped: (path, reason) => events.push(`skipped ${path} ${reason}`),
    backendLost: (text) => events.push(text),
    noDescriptor: (text) => events.push(`descriptor: ${text}`),
    refused: (budget) => events.push(`refused ${budget}`),
  };
  const locals: FakeTransport[] = [];
  const ends = new Map<string, FakeTransport>();
  const proxy = { clock: 0, locals, events };
  const core = new ProxyConnection(
    {
      ...LIMITS,
      shared: new SharedBudget(SHARED_LIMITS),
      // Not deferred, unless a test covers that.
      deferredWriteDelay: 0,
      // No read-ahead, so that the backend's windows equal the client's.
      readAhead: 0,
      queueLimit: 2 ** 31 - 1,
      now: () => proxy.clock,
      connectLocal: (events) => {
        const local = new FakeTransport(events);
        locals.push(local);
        return local;
      },
      ...options,
      observer,
      interception: {
        route: options.route ?? routeOf,
        isWatch: (path) => path.endsWith('/Watch'),
        amend: options.amend ?? (() => Promise.resolve(undefined)),
        prepare: options.prepare ?? (() => undefined),
        amendMessage: options.amendMessage ?? (() => undefined),
        isDelayed: options.isDelayed ?? (() => false),
        delay: options.delay ?? (() => undefined),
      },
    },
    (side, events) => {
      const end = new FakeTransport(events);
      ends.set(side, end);
      return end;
    },
  );
  return Object.assign(proxy, { core, client: ends.get('client')!, backend: ends.get('backend')! });
}

/** Returns a proxy whose connection is set up. The frames of the setup have been read. */
export function openProxy(options: TestProxyOptions = {}, ...clientSettings: [id: number, value: number][]): TestProxy {
  const proxy = startProxy(options);
  proxy.client.send(PREFACE, settings(...clientSettings));
  proxy.backend.send(settings(), SETTINGS_ACK);
  proxy.client.send(SETTINGS_ACK);
  proxy.client.take();
  proxy.backend.take();
  return proxy;
}

/** Returns an open proxy connection whose client has sent the headers of stream 1. */
export function withStream(path = '/pass/A', last = false): TestProxy {
  const proxy = openProxy();
  proxy.client.send(headers(1, request(path), last));
  proxy.backend.take();
  return proxy;
}

/** Waits for the next turn of the event loop: reactions of settled promises have run, and their output is written. */
export async function settled(): Promise<void> {
  await nextTurn();
}

export const typesOf = (frames: readonly SeenFrame[]): number[] => frames.map(({ type }) => type);
export const dataOf = (frames: readonly SeenFrame[], id: number): Buffer =>
  Buffer.concat(frames.filter((seen) => seen.type === DATA && seen.id === id).map(({ payload }) => payload));

/** Returns the fields of a HEADERS frame that uses no dynamic table. */
export const fieldsOf = (seen: SeenFrame): Record<string, string> =>
  Object.fromEntries(new HpackDecoder(0, 65_536).decode(seen.payload).map(({ name, value }) => [name, value]));

/** Returns last stream id and error code of the first GOAWAY. */
export function goawayOf(frames: readonly SeenFrame[]): { last: number; code: number } | undefined {
  const seen = frames.find(({ type }) => type === GOAWAY);
  return seen && { last: seen.payload.readUInt32BE(0), code: seen.payload.readUInt32BE(4) };
}

/** Returns stream id and error code of each RST_STREAM. */
export const resetsOf = (frames: readonly SeenFrame[]): [id: number, code: number][] =>
  frames.filter(({ type }) => type === RST_STREAM).map(({ id, payload }) => [id, payload.readUInt32BE(0)]);
