import { once } from 'node:events';
import { type Socket, createConnection } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { openRaw, writeRaw } from '../../support/http2/raw-connection.ts';
import { END_STREAM, RST_STREAM } from '../../support/http2/wire.ts';
import { Finding } from '../finding.ts';
import type { Session, SocketName } from './session.ts';

export type Addresses = Readonly<Record<SocketName, string | number>>;

/** Longer than any call of the fuzzer takes: a call that has no answer by then has none. */
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
    // Nothing is expected of a session that ends with a violation, but it is read.
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

/** Sends the requests in one write. The last may be incomplete, so that no answer is certain. */
async function playHttp({ inputs }: Session, port: number): Promise<number> {
  const socket = createConnection(port, '127.0.0.1').on('error', () => undefined);
  await Promise.race([once(socket, 'connect'), once(socket, 'close')]);
  socket.end(Buffer.concat(inputs));
  socket.resume();
  await Promise.race([once(socket, 'close'), delay(50)]);
  socket.destroy();
  return inputs.length;
}
