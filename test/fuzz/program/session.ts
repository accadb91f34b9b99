import { once } from 'node:events';
import type { Socket } from 'node:net';
import { createConnection } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { openRaw, writeRaw } from '../../support/http2/raw-server.ts';
import {
  DATA,
  data,
  END_HEADERS,
  END_STREAM,
  frame,
  HEADERS,
  headers,
  message,
  PADDED,
  RST_STREAM,
  request,
  rst,
} from '../../support/http2/wire.ts';
import { mutateFrames } from '../proxy/mutate.ts';
import { Random } from '../random.ts';
import { Finding } from '../target.ts';
import { mutateFields } from './call-headers.ts';
import { httpRequest } from './http.ts';
import type { Request } from './requests.ts';
import { apiRequest, criRequest } from './requests.ts';

export type SocketName = 'cri' | 'resize' | 'metrics';

/** The data of one connection. */
export interface Session {
  readonly socket: SocketName;
  /** The inputs, in order. Each is a request with its frames. */
  readonly inputs: readonly Buffer[];
  /** The streams that must end, because their frames are valid. */
  readonly answered: ReadonlySet<number>;
  /** SETTINGS of the client. */
  readonly settings: readonly [id: number, value: number][];
  /** A random generator for everything that the other fields do not set. */
  readonly random: Random;
}

const CALLS = 40;

/** Returns the session with this seed and index. */
export function sessionOf(seed: number, index: number): Session {
  const random = new Random(seed, index);
  const kind = random.below(10);
  if (kind === 0) {
    const inputs = Array.from({ length: 1 + random.below(6) }, () => httpRequest(random));
    return { socket: 'metrics', inputs, answered: new Set(), settings: [], random };
  }
  return calls(kind < 7 ? 'cri' : 'resize', random);
}

function calls(socket: SocketName, random: Random): Session {
  const answered = new Set<number>();
  const make = socket === 'cri' ? criRequest : apiRequest;
  const inputs = Array.from({ length: CALLS }, (_, at) => {
    const id = 2 * at + 1;
    const { bytes, isAnswered } = callFrames(id, make(random), random);
    if (isAnswered) answered.add(id);
    return bytes;
  });
  // The last input may break the connection, because no input follows it.
  const isBroken = !random.chance(3);
  if (isBroken) inputs.push(mutateFrames(Buffer.concat(inputs.splice(-2)), random));
  const windows = random.chance(8);
  const mayWait = isBroken || windows;
  const settings: [number, number][] = windows ? [[4, random.pick([0, 1, 100])]] : [];
  return { socket, inputs, answered: mayWait ? new Set() : answered, settings, random };
}

interface CallFrames {
  readonly bytes: Buffer;
  readonly isAnswered: boolean;
}

function callFrames(id: number, { path, body, isWatch }: Request, random: Random): CallFrames {
  const isOdd = random.chance(4);
  const fields = isOdd ? mutateFields(request(path), random) : request(path);
  // The reset arrives with the request, before anything can be answered.
  if (random.chance(16)) {
    const parts = [headers(id, fields, random.chance(2)), rst(id, random.below(14))];
    return { bytes: Buffer.concat(parts), isAnswered: false };
  }
  const { content, isWhole } = grpcContent(body, random);
  const isReset = isWatch === true || random.chance(12);
  const parts = [headers(id, fields), ...dataFrames(id, content, random), ...(isReset ? [rst(id, 8)] : [])];
  return { bytes: Buffer.concat(parts), isAnswered: !isOdd && isWhole && !isReset };
}

/** Returns the message with its prefix, which is sometimes wrong. An incomplete request may wait for its rest. */
function grpcContent(body: Buffer, random: Random): { content: Buffer; isWhole: boolean } {
  switch (random.below(16)) {
    case 0:
      return { content: message(gzipSync(body), true), isWhole: false };
    case 1:
      return { content: message(body, true), isWhole: false };
    case 2:
      return { content: message(body).subarray(0, random.below(body.length + 5)), isWhole: false };
    case 3:
      return { content: Buffer.concat([message(body), message(body)]), isWhole: false };
    case 4:
      return { content: Buffer.concat([message(body), random.bytes(random.below(8))]), isWhole: false };
    default:
      return { content: message(body), isWhole: true };
  }
}

function dataFrames(id: number, content: Buffer, random: Random): Buffer[] {
  switch (random.below(8)) {
    case 0: {
      const at = random.below(content.length + 1);
      return [data(id, content.subarray(0, at)), data(id, content.subarray(at), true)];
    }
    case 1:
      return [data(id, content), data(id, Buffer.alloc(0), true)];
    case 2:
      return [frame(DATA, PADDED | END_STREAM, id, Buffer.concat([Buffer.of(7), content, Buffer.alloc(7)]))];
    case 3:
      return [data(id, content), frame(HEADERS, END_HEADERS | END_STREAM, id)];
    default:
      return [data(id, content, true)];
  }
}

export type Addresses = Readonly<Record<SocketName, string | number>>;

/** Longer than any call of the fuzzer: a call without an answer after this time never gets one. */
const ANSWER_MS = 120_000;

/** Sends a session's inputs and waits for answers. Returns the input count. Rejects with a {@link Finding}. */
export async function play(session: Session, addresses: Addresses): Promise<number> {
  const address = addresses[session.socket];
  return session.socket === 'metrics' ? playHttp(session, Number(address)) : playCalls(session, String(address));
}

async function playCalls({ inputs, answered, settings, random }: Session, path: string): Promise<number> {
  const socket = await openRaw(path, ...(settings.length === 0 ? [[4, 2 ** 30] as [number, number]] : settings));
  const answers = new Answers(socket, answered);
  let sent = 0;
  for (const input of inputs) {
    if (socket.destroyed) break;
    // In chunks, so that frames arrive in parts.
    const chunk = random.chance(12) ? 1 + random.below(input.length) : input.length;
    for (let at = 0; at < input.length; at += chunk) await writeRaw(socket, input.subarray(at, at + chunk));
    sent += 1;
  }
  await answers.over;
  socket.destroy();
  return sent;
}

/** Reads frames until all expected streams have ended, or the connection has. */
class Answers {
  readonly over: Promise<void>;
  readonly #expected: Set<number>;
  #rest: Buffer = Buffer.alloc(0);
  #end: () => void = () => undefined;

  constructor(socket: Socket, expected: ReadonlySet<number>) {
    this.#expected = new Set(expected);
    const ended = new Promise<void>((resolve) => (this.#end = resolve));
    socket.on('data', (bytes: Buffer) => this.#receive(bytes)).once('close', this.#end);
    // A session that ends with a violation needs no answers, but its answers are read.
    const patience = expected.size === 0 ? delay(20) : this.#late();
    this.over = Promise.race([ended, patience]);
  }

  async #late(): Promise<void> {
    await delay(ANSWER_MS, undefined, { ref: false });
    if (this.#expected.size > 0) throw new Finding(`no answer on the streams ${[...this.#expected].join(', ')}`);
  }

  #receive(bytes: Buffer): void {
    const all = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
    let at = 0;
    while (all.length - at >= 9) {
      const end = at + 9 + all.readUIntBE(at, 3);
      if (end > all.length) break;
      const [type, flags] = [all[at + 3]!, all[at + 4]!];
      const isOver = type === RST_STREAM || (type <= 1 && (flags & END_STREAM) !== 0);
      if (isOver && this.#expected.delete(all.readUInt32BE(at + 5)) && this.#expected.size === 0) this.#end();
      at = end;
    }
    this.#rest = all.subarray(at);
  }
}

/** Sends the requests in one write. The last request may be incomplete, so an answer is not guaranteed. */
async function playHttp({ inputs }: Session, port: number): Promise<number> {
  const socket = createConnection(port, '127.0.0.1').on('error', () => undefined);
  await Promise.race([once(socket, 'connect'), once(socket, 'close')]);
  socket.end(Buffer.concat(inputs));
  socket.resume();
  await Promise.race([once(socket, 'close'), delay(50)]);
  socket.destroy();
  return inputs.length;
}
