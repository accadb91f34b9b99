import { once } from 'node:events';
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http';
import { limitConnections, MiB, oneRequestEach, steadyNow } from '../core/index.ts';

/**
 * Limits connections, because any pod of the cluster may connect and each connection takes memory. A scraper needs one.
 * When there are too many, a new connection closes the oldest, and each ends after this time.
 */
const LIMITS = { connections: 16, connectionMs: 10_000 };

/**
 * Serves the metrics of the shim, which has only local addresses, to Prometheus in the cluster. Serves only GET
 * /metrics: the status page and the health checks stay on the node. If the shim does not answer, the status is 502, so
 * that Prometheus reports it as down. While the node has no shim, the response is empty. Rejects if the port is in use.
 * @param socket path of the shim's unix socket for metrics
 * @param isInstalled whether the node has a shim
 */
export async function relayMetrics(port: number, socket: string, isInstalled: () => Promise<boolean>): Promise<Server> {
  const metrics = new ShimMetrics(socket);
  const isFirst = oneRequestEach();
  const server = createServer((asked, response) => {
    if (!isFirst(asked)) return;
    if (asked.method === 'GET' && asked.url === '/metrics') void relay(asked, response, metrics, isInstalled);
    else end(response, { status: 404, type: 'text/plain', body: 'only GET /metrics\n' });
  });
  limitConnections(server, LIMITS);
  server.listen(port);
  await once(server, 'listening');
  return server;
}

/** Answers a request with the shim's metrics. Never rejects. */
async function relay(
  asked: IncomingMessage,
  response: ServerResponse,
  metrics: ShimMetrics,
  isInstalled: () => Promise<boolean>,
): Promise<void> {
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  try {
    end(response, await metrics.read(asked.headers.authorization ?? '', gone.signal));
  } catch (error) {
    if (gone.signal.aborted) return;
    const { code, message } = error as NodeJS.ErrnoException;
    end(response, await withoutShim(isInstalled, code ?? message));
  }
}

interface Answer {
  readonly status: number;
  readonly type: string | undefined;
  readonly body: Buffer | string;
}

/** Returns the answer to a scrape that did not reach the shim. Never rejects. */
async function withoutShim(isInstalled: () => Promise<boolean>, cause: string): Promise<Answer> {
  // A host that cannot be read may have a shim.
  const isExpected = await isInstalled().catch(() => true);
  if (isExpected) return { status: 502, type: 'text/plain', body: `the shim does not answer: ${cause}\n` };
  // Prometheus 3 rejects an answer without this type.
  return { status: 200, type: 'text/plain; version=0.0.4', body: '' };
}

function end(response: ServerResponse, { status, type, body }: Answer): void {
  response.writeHead(status, {
    ...(type !== undefined && { 'content-type': type }),
    'content-length': Buffer.byteLength(body),
    // A connection has one request.
    connection: 'close',
  });
  response.end(body);
}

/** An answer of the shim. */
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

/** A running or waiting call to the shim. */
interface Call {
  readonly answer: PromiseWithResolvers<ShimAnswer>;
  /** Clients that wait for the answer. */
  clients: number;
  isRunning: boolean;
}

/**
 * Reads the shim's metrics, one call at a time, so that requests cannot overload it. First asks without authorization:
 * if the shim has no token, all clients share the answer. A call whose clients have all disconnected before it starts
 * is dropped, so no more calls wait than there are connections.
 */
class ShimMetrics {
  /** Calls that run or wait, by their authorization, in their order. */
  readonly #calls = new Map<string, Call>();
  #isAsking = false;
  #open: { readonly answer: ShimAnswer; readonly at: number } | undefined;

  constructor(private readonly socket: string) {}

  /** Rejects if the shim does not answer, or with the signal's reason. @param gone aborts if the client leaves */
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

  /** Runs all calls, including calls that are added meanwhile. Never rejects. */
  async #askAll(): Promise<void> {
    this.#isAsking = true;
    for (const [authorization, call] of this.#calls) {
      call.isRunning = true;
      await ask(this.socket, authorization).then(call.answer.resolve, call.answer.reject);
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
