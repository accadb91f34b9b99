import { MESSAGE_PREFIX_SIZE } from '../../src/core/grpc.ts';
import { Flag, type Frame, FrameType, PREFACE } from '../../src/http2/frame.ts';
import { FrameReader, HeaderAssembly } from '../../src/http2/frame-reader.ts';
import { DEFAULT_TABLE_SIZE, HpackDecoder } from '../../src/http2/hpack/codec.ts';
import type { HeaderField } from '../../src/http2/hpack/field.ts';

/** A call that has ended. */
export interface ObservedCall {
  readonly path: string;
  /** By the clock of the connection. */
  readonly startedAt: number;
  readonly endedAt: number;
  readonly requests: readonly Buffer[];
  readonly responses: readonly Buffer[];
  /** The status code of gRPC. */
  readonly status: number;
  readonly message: string;
}

interface OpenCall {
  readonly path: string;
  readonly startedAt: number;
  readonly sent: Buffer[];
  readonly received: Buffer[];
}

const LARGEST_BLOCK = 65_536;
const CANCELLED = 1;
const UNKNOWN = 2;

/** Reads the frames of one direction. */
class Direction {
  readonly #reader: FrameReader;
  readonly #assembly = new HeaderAssembly(LARGEST_BLOCK);
  readonly #decoder = new HpackDecoder(DEFAULT_TABLE_SIZE, LARGEST_BLOCK);

  constructor(
    headers: (id: number, fields: readonly HeaderField[], isEnd: boolean) => void,
    other: (frame: Frame) => void,
  ) {
    this.#reader = new FrameReader((frame) => {
      const block = this.#assembly.take(frame);
      if (block !== undefined) headers(block.streamId, this.#decoder.decode(block.block), block.endStream);
      else other(frame);
    });
  }

  push(chunk: Buffer): void {
    this.#reader.push(chunk);
    this.#reader.recycle();
  }
}

/** Reads what client and server of a connection send, without changing it. Throws if not HTTP/2 with gRPC. */
export class ObservedConnection {
  readonly #calls = new Map<number, OpenCall>();
  readonly #fromClient: Direction;
  readonly #fromServer: Direction;
  readonly #now: () => number;
  readonly #ended: (call: ObservedCall) => void;
  #preface = PREFACE.length;

  /** @param ended receives each call at its end */
  constructor(ended: (call: ObservedCall) => void, now: () => number) {
    this.#ended = ended;
    this.#now = now;
    this.#fromClient = new Direction(
      (id, fields) => this.#begin(id, fields),
      (frame) => {
        if (frame.type === FrameType.DATA) this.#calls.get(frame.streamId)?.sent.push(Buffer.from(frame.content()));
        if (frame.type === FrameType.RST_STREAM) this.#end(frame.streamId, CANCELLED, 'cancelled by the client');
      },
    );
    this.#fromServer = new Direction(
      (id, fields, isEnd) => {
        if (isEnd) this.#end(id, Number(valueOf(fields, 'grpc-status') ?? UNKNOWN), valueOf(fields, 'grpc-message'));
      },
      (frame) => {
        if (frame.type === FrameType.DATA) this.#calls.get(frame.streamId)?.received.push(Buffer.from(frame.content()));
        if (frame.type === FrameType.DATA && frame.has(Flag.END_STREAM)) this.#end(frame.streamId, UNKNOWN);
        if (frame.type === FrameType.RST_STREAM) this.#end(frame.streamId, UNKNOWN, 'reset by the server');
      },
    );
  }

  fromClient(chunk: Buffer): void {
    const skipped = Math.min(this.#preface, chunk.length);
    this.#preface -= skipped;
    this.#fromClient.push(chunk.subarray(skipped));
  }

  fromServer(chunk: Buffer): void {
    this.#fromServer.push(chunk);
  }

  #begin(id: number, fields: readonly HeaderField[]): void {
    const path = valueOf(fields, ':path');
    if (path !== undefined) this.#calls.set(id, { path, startedAt: this.#now(), sent: [], received: [] });
  }

  #end(id: number, status: number, message = ''): void {
    const call = this.#calls.get(id);
    if (call === undefined) return;
    this.#calls.delete(id);
    const { path, startedAt, sent, received } = call;
    const [requests, responses] = [messagesOf(sent), messagesOf(received)];
    this.#ended({ path, startedAt, endedAt: this.#now(), requests, responses, status, message });
  }
}

const valueOf = (fields: readonly HeaderField[], name: string): string | undefined =>
  fields.find((field) => field.name === name)?.value;

/** Splits one direction of a call into messages. Throws for a compressed message. Omits an incomplete one. */
function messagesOf(parts: readonly Buffer[]): Buffer[] {
  const bytes = Buffer.concat(parts);
  const messages: Buffer[] = [];
  for (let at = 0; at + MESSAGE_PREFIX_SIZE <= bytes.length; ) {
    if (bytes.readUInt8(at) !== 0) throw new Error('a message is compressed, which a recording cannot have');
    const start = at + MESSAGE_PREFIX_SIZE;
    const end = start + bytes.readUInt32BE(at + 1);
    if (end > bytes.length) break;
    messages.push(bytes.subarray(start, end));
    at = end;
  }
  return messages;
}
