import { type IncomingMessage, request } from 'node:http';
import { join } from 'node:path';
import { steadyNow } from '../../../core/concurrency/index.ts';
import { MiB } from '../../../core/quantities/index.ts';

/** What the shim answers. */
export interface ShimAnswer {
  readonly status: number;
  readonly type: string | undefined;
  readonly body: Buffer;
}

/** Maximum time of a call in milliseconds. */
const CALL_MS = 10_000;
const LONGEST_ANSWER = 4 * MiB;
/** How long an answer without authorization is shared, in milliseconds. Prometheus scrapes at most once in a second. */
const SHARED_MS = 1000;
const UNAUTHORIZED = 401;

/** A call to the shim that runs or waits. */
interface Call {
  readonly answer: PromiseWithResolvers<ShimAnswer>;
  /** Clients that wait for the answer. */
  clients: number;
  isRunning: boolean;
}

/**
 * Reads the metrics of the shim, one call at a time, so that requests cannot load it. The shim is asked without authorization first: if it
 * has no token, its answer is for everyone. A call whose clients have all gone before it starts is dropped, so no more calls wait than
 * there are connections.
 */
export class ShimMetrics {
  readonly #hostRoot: string;
  readonly #socket: string;
  /** Calls that run or wait, by their authorization, in their order. */
  readonly #calls = new Map<string, Call>();
  #isAsking = false;
  #open: { readonly answer: ShimAnswer; readonly at: number } | undefined;

  constructor(hostRoot: string, socket: string) {
    this.#hostRoot = hostRoot;
    this.#socket = socket;
  }

  /** Rejects if the shim does not answer, or with the reason of the signal. @param gone aborts when the client has gone */
  async read(authorization: string, gone: AbortSignal): Promise<ShimAnswer> {
    const open = await this.#readOpen(gone);
    return open.status === UNAUTHORIZED && authorization !== '' ? this.#call(authorization, gone) : open;
  }

  async #readOpen(gone: AbortSignal): Promise<ShimAnswer> {
    if (this.#open !== undefined && steadyNow() - this.#open.at < SHARED_MS) return this.#open.answer;
    const answer = await this.#call('', gone);
    this.#open = { answer, at: steadyNow() };
    return answer;
  }

  #call(authorization: string, gone: AbortSignal): Promise<ShimAnswer> {
    if (gone.aborted) return Promise.reject(gone.reason as Error);
    const call = this.#calls.get(authorization) ?? { answer: Promise.withResolvers(), clients: 0, isRunning: false };
    call.clients += 1;
    this.#calls.set(authorization, call);
    gone.addEventListener('abort', () => {
      call.clients -= 1;
      if (call.clients > 0 || call.isRunning) return;
      this.#calls.delete(authorization);
      call.answer.reject(gone.reason);
    });
    if (!this.#isAsking) void this.#askAll();
    return call.answer.promise;
  }

  /** Runs all calls, those included that are added meanwhile. Never rejects. */
  async #askAll(): Promise<void> {
    this.#isAsking = true;
    for (const [authorization, call] of this.#calls) {
      call.isRunning = true;
      await ask(join(this.#hostRoot, this.#socket), authorization).then(call.answer.resolve, call.answer.reject);
      this.#calls.delete(authorization);
    }
    this.#isAsking = false;
  }
}

function ask(socketPath: string, authorization: string): Promise<ShimAnswer> {
  const headers = { host: 'localhost', ...(authorization !== '' && { authorization }) };
  return new Promise((resolve, reject) => {
    const call = request({ socketPath, path: '/metrics', headers, signal: AbortSignal.timeout(CALL_MS) });
    call.on('error', (error) => {
      reject(error.name === 'AbortError' ? new Error(`no answer within ${CALL_MS} ms`) : error);
    });
    call.on('response', (answer) => void readAnswer(answer).then(resolve, reject));
    call.end();
  });
}

async function readAnswer(answer: IncomingMessage): Promise<ShimAnswer> {
  const parts: Buffer[] = [];
  let length = 0;
  for await (const part of answer as AsyncIterable<Buffer>) {
    parts.push(part);
    length += part.length;
    if (length > LONGEST_ANSWER) throw new Error(`the answer is longer than ${LONGEST_ANSWER} bytes`);
  }
  return { status: answer.statusCode ?? 502, type: answer.headers['content-type'], body: Buffer.concat(parts) };
}
