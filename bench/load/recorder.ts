import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createConnection, createServer, type Server, type Socket } from 'node:net';
import { canonicalResponse } from './canonical.ts';
import { type ObservedCall, ObservedConnection } from './observed-connection.ts';
import type { RecordedCall } from './recording.ts';

/** Calls that were cancelled by their client have no answer to compare. */
const CANCELLED = 1;

const now = (): number => performance.now();

/** A proxy between a kubelet and a runtime. It records the calls and forwards all bytes unchanged. */
export class Recorder {
  readonly #server: Server;
  readonly #target: string;
  readonly #sockets = new Set<Socket>();
  #connections = 0;
  #begunAt: number | undefined;
  #calls: RecordedCall[] = [];
  #left = 0;
  #failure: Error | undefined;
  readonly #lastCalls = new Map<string, number>();
  /** Each content once: a node with many pods has the same long answer every second. */
  readonly #contents = new Map<string, Buffer>();

  private constructor(target: string) {
    this.#target = target;
    this.#server = createServer((client) => this.#connect(client));
  }

  /** @param target the socket of the runtime */
  static async start(path: string, target: string): Promise<Recorder> {
    const recorder = new Recorder(target);
    recorder.#server.listen(path);
    await once(recorder.#server, 'listening');
    return recorder;
  }

  /** Starts to record calls. Earlier calls are not part of the recording. */
  begin(): void {
    this.#calls = [];
    this.#left = 0;
    this.#begunAt = now();
  }

  /**
   * Returns the calls that started after {@link begin} and have ended, sorted by start, and the number of calls that
   * the recording omits, because the client cancelled them or the response is a stream. Throws if a connection could
   * not be read.
   */
  end(): { readonly calls: readonly RecordedCall[]; readonly left: number } {
    if (this.#failure !== undefined) throw this.#failure;
    this.#begunAt = undefined;
    return { calls: this.#calls.toSorted((a, b) => a.atMs - b.atMs), left: this.#left };
  }

  /** Returns the time since the last call of one of these methods ended, in milliseconds. */
  quietFor(methods: readonly string[]): number {
    return now() - Math.max(...methods.map((method) => this.#lastCalls.get(method) ?? 0));
  }

  close(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #connect(client: Socket): void {
    const connection = this.#connections;
    this.#connections += 1;
    const backend = createConnection(this.#target);
    const observed = new ObservedConnection((call) => this.#note(connection, call), now);
    this.#copy(client, backend, (chunk) => observed.fromClient(chunk));
    this.#copy(backend, client, (chunk) => observed.fromServer(chunk));
  }

  #copy(from: Socket, to: Socket, observe: (chunk: Buffer) => void): void {
    this.#sockets.add(from);
    from.on('data', (chunk: Buffer) => {
      if (!to.write(chunk)) from.pause();
      try {
        observe(chunk);
      } catch (error) {
        this.#failure ??= new Error('a connection cannot be read', { cause: error });
      }
    });
    to.on('drain', () => from.resume());
    from.on('error', () => to.destroy());
    from.on('close', () => {
      this.#sockets.delete(from);
      to.destroy();
    });
  }

  #note(connection: number, call: ObservedCall): void {
    const { path, startedAt, endedAt, requests, responses, status, message } = call;
    this.#lastCalls.set(path.slice(path.lastIndexOf('/') + 1), endedAt);
    if (this.#begunAt === undefined || startedAt < this.#begunAt) return;
    const [request] = requests;
    if (request === undefined || status === CANCELLED || responses.length > 1) {
      this.#left += 1;
      return;
    }
    this.#calls.push({
      connection,
      atMs: startedAt - this.#begunAt,
      path,
      request: this.#once(request),
      responses: responses.map((response) => this.#once(canonicalResponse(path, response))),
      status,
      message,
      durationMs: endedAt - startedAt,
    });
  }

  #once(content: Buffer): Buffer {
    const key = createHash('sha256').update(content).digest('base64');
    const known = this.#contents.get(key) ?? Buffer.from(content);
    this.#contents.set(key, known);
    return known;
  }
}
