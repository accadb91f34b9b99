import { createServer, type Http2Server, type ServerHttp2Stream } from 'node:http2';
import { MESSAGE_PREFIX_SIZE, messagePrefix } from '../../src/core/grpc.ts';
import type { RecordedCall, Recording } from './recording.ts';

type Answer = Pick<RecordedCall, 'responses' | 'status' | 'message'>;

const UNIMPLEMENTED = 12;

/** Answers calls with recorded bytes. */
export class RecordedAnswers {
  readonly #answers = new Map<string, Answer[]>();
  /** How often each request was answered. */
  readonly #counts = new Map<string, number>();
  readonly #unknown = new Set<string>();

  constructor({ calls, answers }: Pick<Recording, 'calls' | 'answers'>) {
    for (const { path, request, ...answer } of calls) this.#add(keyOf(path, request), answer);
    for (const { path, request, response } of answers) {
      const key = keyOf(path, request);
      if (!this.#answers.has(key)) this.#add(key, { responses: [response], status: 0, message: '' });
    }
  }

  /** Returns the answers to the same request in turn, from the first one again after the last. */
  answer(path: string, request: Buffer): Answer {
    const key = keyOf(path, request);
    const all = this.#answers.get(key);
    if (all === undefined) this.#unknown.add(`${path} with ${request.length} bytes`);
    const count = this.#counts.get(key) ?? 0;
    this.#counts.set(key, count + 1);
    return all?.[count % all.length] ?? { responses: [], status: UNIMPLEMENTED, message: 'not in the recording' };
  }

  /** Calls without a recorded answer. */
  get unknown(): readonly string[] {
    return [...this.#unknown];
  }

  #add(key: string, answer: Answer): void {
    const all = this.#answers.get(key);
    if (all === undefined) this.#answers.set(key, [answer]);
    else all.push(answer);
  }
}

const keyOf = (path: string, request: Buffer): string => `${path} ${request.toString('latin1')}`;

/** Serves recorded answers by gRPC. */
export function serveRecorded(answers: RecordedAnswers): Http2Server {
  const server = createServer();
  server.on('stream', (stream, headers) => {
    const parts: Buffer[] = [];
    stream.on('data', (part: Buffer) => parts.push(part));
    stream.on('end', () => {
      const request = Buffer.concat(parts).subarray(MESSAGE_PREFIX_SIZE);
      respond(stream, answers.answer(headers[':path'] ?? '', request));
    });
    // A client may end at any moment.
    stream.on('error', () => undefined);
  });
  return server;
}

function respond(stream: ServerHttp2Stream, { responses, status, message }: Answer): void {
  const trailers = { 'grpc-status': String(status), 'grpc-message': message };
  const headers = { ':status': 200, 'content-type': 'application/grpc' };
  if (responses.length === 0) {
    stream.respond({ ...headers, ...trailers }, { endStream: true });
    return;
  }
  stream.respond(headers, { waitForTrailers: true });
  stream.on('wantTrailers', () => stream.sendTrailers(trailers));
  stream.end(Buffer.concat(responses.flatMap((response) => [messagePrefix(response.length), response])));
}
