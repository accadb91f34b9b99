import { once } from 'node:events';
import { type IncomingMessage, type Server, type ServerResponse, createServer, request } from 'node:http';
import { pipeline } from 'node:stream';

/** Maximum time without data in milliseconds. */
const IDLE_MS = 10_000;
/** A scraper needs one; each takes memory of the pod. */
const MOST_CONNECTIONS = 16;

/**
 * Serves the metrics of the shim, which has only local addresses, to Prometheus in the cluster. Only GET /metrics: the status page and
 * the health checks stay on the node. Without an answer of the shim the status is 502, so that Prometheus reports it as down. Rejects
 * if the port is taken.
 * @param socket the shim's unix socket for metrics
 */
export async function relayMetrics(port: number, socket: string): Promise<Server> {
  const server = createServer((asked, response) => {
    if (asked.method === 'GET' && asked.url === '/metrics') relay(asked, response, socket);
    else response.writeHead(404, { 'content-type': 'text/plain' }).end('only GET /metrics\n');
  });
  server.maxConnections = MOST_CONNECTIONS;
  server.requestTimeout = IDLE_MS;
  server.listen(port);
  await once(server, 'listening');
  return server;
}

function relay(asked: IncomingMessage, response: ServerResponse, socketPath: string): void {
  const { accept, authorization } = asked.headers;
  const headers = { host: 'localhost', ...(accept && { accept }), ...(authorization && { authorization }) };
  const call = request({ socketPath, path: '/metrics', headers, timeout: IDLE_MS });
  call.on('timeout', () => call.destroy(new Error(`no data for ${IDLE_MS} ms`)));
  call.on('error', (error: NodeJS.ErrnoException) => {
    if (response.headersSent) response.destroy();
    else
      response
        .writeHead(502, { 'content-type': 'text/plain' })
        .end(`the shim does not answer: ${error.code ?? error.message}\n`);
  });
  call.on('response', (answer) => {
    const type = answer.headers['content-type'];
    response.writeHead(answer.statusCode ?? 502, { ...(type && { 'content-type': type }) });
    pipeline(answer, response, () => undefined);
  });
  response.on('close', () => call.destroy());
  call.end();
}
