import { once } from 'node:events';
import { type IncomingMessage, type Server, type ServerResponse, createServer } from 'node:http';
import { limitConnections, oneRequestEach } from '../../../core/http/index.ts';
import { isShimEnabled } from '../../../endpoint/index.ts';
import { ShimMetrics } from './shim-metrics.ts';

/**
 * Any pod of the cluster may connect. A scraper needs one connection; each takes memory of the pod. A new one ends the oldest if there are
 * too many, and each ends after this time.
 */
const LIMITS = { connections: 16, connectionMs: 10_000 };

/**
 * Serves the metrics of the shim, which has only local addresses, to Prometheus in the cluster. Only GET /metrics: the status page and
 * the health checks stay on the node. Without an answer of the shim the status is 502, so that Prometheus reports it as down. A node that
 * waits for its first turn has no shim that could be down: its answer is empty. Rejects if the port is taken.
 * @param socket the shim's unix socket for metrics, as a path on the host
 */
export async function relayMetrics(port: number, hostRoot: string, socket: string): Promise<Server> {
  const metrics = new ShimMetrics(hostRoot, socket);
  const isFirst = oneRequestEach();
  const server = createServer((asked, response) => {
    if (!isFirst(asked)) return;
    if (asked.method === 'GET' && asked.url === '/metrics') void relay(asked, response, metrics, hostRoot);
    else end(response, { status: 404, type: 'text/plain', body: 'only GET /metrics\n' });
  });
  limitConnections(server, LIMITS);
  server.listen(port);
  await once(server, 'listening');
  return server;
}

/** Never rejects. */
async function relay(
  asked: IncomingMessage,
  response: ServerResponse,
  metrics: ShimMetrics,
  hostRoot: string,
): Promise<void> {
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  try {
    end(response, await metrics.read(asked.headers.authorization ?? '', gone.signal));
  } catch (error) {
    if (gone.signal.aborted) return;
    const { code, message } = error as NodeJS.ErrnoException;
    end(response, await withoutShim(hostRoot, code ?? message));
  }
}

interface Answer {
  readonly status: number;
  readonly type: string | undefined;
  readonly body: Buffer | string;
}

/** Returns the answer to a scrape that did not reach the shim. Never rejects. */
async function withoutShim(hostRoot: string, cause: string): Promise<Answer> {
  // A host that cannot be read may have a shim.
  const isExpected = await isShimEnabled(hostRoot).catch(() => true);
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
