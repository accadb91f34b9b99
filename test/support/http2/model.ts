import { HpackDecoder } from '../../../src/http2/hpack/codec.ts';
import type { FakeTransport, SeenFrame } from './wire.ts';
import {
  DATA,
  data,
  GOAWAY,
  HEADERS,
  headers,
  message,
  OK,
  RESPONSE,
  RST_STREAM,
  request,
  rst,
  SETTINGS,
  SETTINGS_ACK,
  settings,
  WINDOW_UPDATE,
  windowUpdate,
} from './wire.ts';

/** A client and servers that model RFC 9113 6.9: each tracks its windows, and throws when a peer exceeds one. */

const WINDOW = 65_535;
const LARGEST = 2 ** 31 - 1;

/** Returns bytes that depend on their position and on the seed. */
export function pattern(seed: number, length: number): Buffer {
  const bytes = Buffer.alloc(length);
  for (let at = 0; at < length; at += 1) bytes[at] = (at * 31 + seed * 17) % 251;
  return bytes;
}

/** The sizes of a stream's messages, encoded in its path: `/route/request bytes/response bytes`. */
export interface Plan {
  readonly route: string;
  readonly up: number;
  readonly down: number;
}

/** Returns the messages of a plan's response. Those of `each` are a stream of several. */
export function responses(id: number, { route, down }: Plan): Buffer[] {
  const lengths = route === 'each' ? [down, 0, down % 97, down >> 2, down >> 1] : [down];
  return lengths.map((length, index) => pattern(id + 1 + index, length));
}

/** Returns the request and response of a plan: one gRPC message each, or several for the response of `each`. */
export function contents(id: number, plan: Plan): { up: Buffer; down: Buffer } {
  const down = Buffer.concat(responses(id, plan).map((bytes) => message(bytes)));
  return { up: message(pattern(id, plan.up)), down };
}

interface Half {
  /** The window for sending. */
  window: number;
  rest: Buffer;
  /** The window granted to the peer. */
  granted: number;
  received: Buffer[];
  ended: boolean;
}

abstract class Peer {
  readonly transport: FakeTransport;
  readonly streams = new Map<number, Half>();
  readonly inbox: SeenFrame[] = [];
  /** The connection's windows: for sending, and granted to the peer. */
  window = WINDOW;
  granted = WINDOW;
  /** Number of frames read, which shows whether anything still moves. */
  read = 0;
  /** The peer's initial window that is in force. */
  initial = WINDOW;
  /** Our own initial window, in force for what the peer sends once it has acknowledged it. */
  ownInitial = WINDOW;
  readonly #unacknowledged: number[] = [];

  constructor(transport: FakeTransport) {
    this.transport = transport;
  }

  /** Moves received frames to the inbox. */
  collect(): void {
    this.inbox.push(...this.transport.take());
  }

  /** Reads one frame. */
  step(): boolean {
    const seen = this.inbox.shift();
    if (seen === undefined) return false;
    this.read += 1;
    const stream = this.streams.get(seen.id);
    if (seen.type === SETTINGS) this.#settings(seen);
    else if (seen.type === WINDOW_UPDATE) this.#windowUpdate(seen, stream);
    else if (seen.type === DATA) this.#data(seen, stream);
    else if (seen.type === RST_STREAM) this.streams.delete(seen.id);
    else if (seen.type === GOAWAY) throw new Error(`GOAWAY ${seen.payload.toString('latin1')}`);
    else if (seen.type === HEADERS) this.headers(seen);
    return true;
  }

  abstract headers(seen: SeenFrame): void;

  sendSettings(first = Buffer.alloc(0)): void {
    this.#unacknowledged.push(this.ownInitial);
    this.transport.send(first, settings());
  }

  changeInitial(size: number): void {
    this.#unacknowledged.push(size);
    this.transport.send(settings([4, size]));
  }

  /** Sends up to this many bytes of a stream. */
  sendSome(id: number, most: number, last: boolean): void {
    const stream = this.streams.get(id);
    if (stream === undefined) return;
    const size = Math.min(most, stream.rest.length, this.window, stream.window, 16_384);
    if (size <= 0) return;
    const part = stream.rest.subarray(0, size);
    stream.rest = stream.rest.subarray(size);
    this.window -= size;
    stream.window -= size;
    this.transport.send(data(id, part, last && stream.rest.length === 0));
  }

  /** Grants the peer a larger window. */
  grant(id: number, size: number): void {
    if (size === 0) return;
    const stream = this.streams.get(id);
    if (id === 0) this.granted += size;
    else if (stream === undefined || stream.ended) return;
    else stream.granted += size;
    this.transport.send(windowUpdate(id, size));
  }

  #settings(seen: SeenFrame): void {
    if (seen.flags === 1) {
      const initial = this.#unacknowledged.shift() ?? this.ownInitial;
      for (const stream of this.streams.values()) stream.granted += initial - this.ownInitial;
      this.ownInitial = initial;
      return;
    }
    for (let at = 0; at < seen.payload.length; at += 6) {
      if (seen.payload.readUInt16BE(at) !== 4) continue;
      const initial = seen.payload.readUInt32BE(at + 2);
      for (const stream of this.streams.values()) stream.window += initial - this.initial;
      this.initial = initial;
    }
    this.transport.send(SETTINGS_ACK);
  }

  #windowUpdate(seen: SeenFrame, stream: Half | undefined): void {
    const size = seen.payload.readUInt32BE(0);
    if (size === 0) throw new Error('WINDOW_UPDATE of 0');
    if (seen.id === 0) this.window += size;
    else if (stream !== undefined) stream.window += size;
    if (Math.max(this.window, stream?.window ?? 0) > LARGEST) throw new Error('a window over 2^31-1');
  }

  #data(seen: SeenFrame, stream: Half | undefined): void {
    const { length } = seen.payload;
    this.granted -= length;
    if (this.granted < 0) throw new Error(`${length} bytes of DATA over the connection window`);
    if (stream === undefined) return;
    stream.granted -= length;
    if (length > 0 && stream.granted < 0) throw new Error(`${length} bytes of DATA over the window of a stream`);
    if (stream.ended) throw new Error('DATA after the end');
    stream.received.push(seen.payload);
    if ((seen.flags & 1) !== 0) stream.ended = true;
  }

  protected open(id: number, rest: Buffer): void {
    this.streams.set(id, { window: this.initial, rest, granted: this.ownInitial, received: [], ended: false });
  }
}

export class ModelClient extends Peer {
  readonly plans = new Map<number, Plan>();
  #next = 1;

  start(plan: Plan): void {
    const id = this.#next;
    this.#next += 2;
    this.plans.set(id, plan);
    this.open(id, contents(id, plan).up);
    this.transport.send(headers(id, request(`/${plan.route}/${plan.up}/${plan.down}`)));
  }

  cancel(id: number): void {
    if (this.streams.delete(id)) this.transport.send(rst(id, 8));
  }

  override headers(seen: SeenFrame): void {
    const stream = this.streams.get(seen.id);
    if (stream !== undefined && (seen.flags & 1) !== 0) stream.ended = true;
  }

  override sendSome(id: number, most: number): void {
    super.sendSome(id, most, true);
  }
}

export class ModelServer extends Peer {
  readonly uploads = new Map<number, Half>();

  override headers(seen: SeenFrame): void {
    const fields = new HpackDecoder(0, 65_536).decode(seen.payload);
    const path = fields.find(({ name }) => name === ':path')!.value;
    const [, route, up, down] = path.split('/');
    this.open(seen.id, contents(seen.id, { route: route!, up: Number(up), down: Number(down) }).down);
    this.uploads.set(seen.id, this.streams.get(seen.id)!);
    this.transport.send(headers(seen.id, RESPONSE));
  }

  /**
   * Answers the request. The last bytes and the trailers follow only after the whole request, as from a gRPC server.
   */
  override sendSome(id: number, most: number): void {
    const stream = this.streams.get(id);
    if (stream === undefined) return;
    const whole = stream.ended;
    super.sendSome(id, whole ? most : Math.min(most, stream.rest.length - 1), false);
    if (!whole || stream.rest.length > 0) return;
    this.streams.delete(id);
    this.transport.send(headers(id, OK, true));
  }
}
