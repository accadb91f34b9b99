import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { isIPv4 } from 'node:net';
import {
  type Budget,
  type BypassTimes,
  type ConnectionLimits,
  type EndpointState,
  type Family,
  type Log,
  limitConnections,
  loggableError,
  type NodeReadings,
  oneRequestEach,
  type ReadinessReport,
  ShimError,
  wallTime,
} from '../core/index.ts';
import type { Overview } from '../sandbox/index.ts';
import { type Answer, healthAnswer, livenessAnswer, plain } from './answer.ts';
import { cached } from './cached.ts';
import { MONITORING_LIMITS, type MonitoringLimits } from './limits.ts';
import { LivePages } from './live-pages.ts';
import { expositionOf, expositionType, measureEventLoop, processFamilies, readingFamilies } from './metrics.ts';
import { NodePage } from './page/page.ts';
import { TokenFile } from './token.ts';

export interface MonitoringOptions {
  readonly version: string;
  /** The metric families of the counters. */
  readonly counted: readonly Family[];
  /** Must not reject. */
  readonly readiness: () => Promise<ReadinessReport>;
  readonly node: () => NodeReadings;
  readonly bypass: () => BypassTimes;
  readonly endpoint: () => EndpointState;
  /** The content of the page. The signal aborts when nobody waits for it any more. */
  readonly overview: (signal?: AbortSignal) => Promise<Overview>;
  /** Calls `onResize` for each event of a resize, until the function that it returns is called. */
  readonly watchResizes: (onResize: () => void) => () => void;
  /** Connections of CRI clients that are open. */
  readonly connections: () => number;
  /** Counts a refusal because a budget was used up. */
  readonly refused: (budget: Budget) => void;
  readonly log: Log;
}

export interface MonitoringServer {
  /** Not listening yet. */
  readonly http: Server;
  /** Ends all connections. */
  close(): void;
}

/** Handles a path. The signal aborts when the client has disconnected. */
type Route = (query: URLSearchParams, signal: AbortSignal) => Answer | Promise<Answer>;

/** Access control of the server. */
export interface MonitoringAccess {
  /** Whether any local user or browser may connect: the Host header is then checked, and the page is cached. */
  readonly isTcp: boolean;
  /** File with the token that every request must have. Undefined: none. */
  readonly tokenFile?: string;
}

/** Returns the HTTP server of metrics, health checks and the status page. */
export function createMonitoringServer(
  options: MonitoringOptions,
  { isTcp, tokenFile }: MonitoringAccess,
  limits: MonitoringLimits = MONITORING_LIMITS,
): MonitoringServer {
  const read = (signal?: AbortSignal): Promise<NodePage> => readPage(options, signal);
  const readCached = cached(read, limits.pageMs);
  const token = tokenFile === undefined ? undefined : new TokenFile(tokenFile, options.log, limits.tokenMs);
  const lag = measureEventLoop();
  const routes: Readonly<Record<string, Route>> = {
    '/metrics': async () => ({
      status: 200,
      type: expositionType,
      body: expositionOf(await allFamilies(options, lag.family)),
    }),
    '/': (query, signal) => pageOf(() => (isTcp ? readCached : read)(signal), query),
    '/healthz': (query) => livenessAnswer('healthz', query),
    '/livez': (query) => livenessAnswer('livez', query),
    '/readyz': async (query) => healthAnswer('readyz', await options.readiness(), query),
  };
  const answer: AnswerOf = async (request, response, signal) =>
    (isTcp ? whyWrongHost(request) : undefined) ??
    (await whyNotAdmitted(token, request)) ??
    (await answerTo({ routes, live }, request, response, signal));
  const isFirst = oneRequestEach();
  const http = createServer((request, response) => {
    if (isFirst(request))
      void serve(answer, request, response, { signal: goneSignal(response, ended), log: options.log });
  });
  const { ended, ...connections } = limitConnections(http, limits);
  const live = new LivePages({ ...options, ...connections, read, readCached }, limits);
  return {
    http,
    close() {
      lag.stop();
      live.close();
      http.close();
      http.closeAllConnections();
    },
  };
}

async function readPage(
  { version, readiness, overview }: MonitoringOptions,
  signal: AbortSignal | undefined,
): Promise<NodePage> {
  const shown = { version, readiness: await readiness(), overview: await overview(signal) };
  return NodePage.of({ ...shown, now: new Date(wallTime()) });
}

/**
 * Returns a signal that aborts when the client has disconnected. It does not abort for a connection that was closed
 * because of limits: that client asks again, so its reading continues and the next answer is ready at once.
 */
function goneSignal(response: ServerResponse, ended: ConnectionLimits['ended']): AbortSignal {
  const gone = new AbortController();
  const { socket } = response;
  response.once('close', () => {
    if (socket === null || !ended.has(socket)) gone.abort();
  });
  return gone.signal;
}

async function pageOf(read: () => Promise<NodePage>, query: URLSearchParams): Promise<Answer> {
  try {
    return (await read()).answer({ pod: query.get('pod') ?? '', filter: query.get('q') ?? '' });
  } catch (error) {
    if (error instanceof ShimError) return plain(503, `${error.reason}: ${error.message}`);
    throw error;
  }
}

async function allFamilies(options: MonitoringOptions, lag: Family): Promise<readonly Family[]> {
  const { version, counted, connections, node, bypass, endpoint } = options;
  const readiness = await options.readiness();
  const read = readingFamilies({
    version,
    connections: connections(),
    readiness,
    node: node(),
    bypass: bypass(),
    endpoint: endpoint(),
  });
  return [...read, ...counted, lag, ...processFamilies()];
}

/** Answers a request; undefined if it has responded by itself. The signal aborts when the client has disconnected. */
type AnswerOf = (
  request: IncomingMessage,
  response: ServerResponse,
  signal: AbortSignal,
) => Promise<Answer | undefined>;

/** Never rejects: an error becomes a response with status 500. */
async function serve(
  answerOf: AnswerOf,
  request: IncomingMessage,
  response: ServerResponse,
  { signal, log }: { readonly signal: AbortSignal; readonly log: Log },
): Promise<void> {
  let answer: Answer | undefined;
  try {
    answer = await answerOf(request, response, signal);
  } catch (error) {
    if (signal.aborted && error === signal.reason) return;
    log.error(
      { path: request.url?.slice(0, 128), ...loggableError(error) },
      'metrics or health request failed with an internal error',
    );
    answer = plain(500, 'internal error in cri-resize-shim; see its log');
  }
  if (answer === undefined) return;
  response.writeHead(answer.status, {
    'content-type': answer.type,
    'content-length': Buffer.byteLength(answer.body),
    // A connection has one request.
    connection: 'close',
    'cache-control': 'no-store',
    'x-content-type-options': 'nosniff',
    ...answer.headers,
  });
  response.end(answer.body);
}

const whyWrongHost = ({ headers }: IncomingMessage): Answer | undefined =>
  isLoopbackHost(headers.host)
    ? undefined
    : plain(403, 'the Host header is not a loopback address: use localhost or 127.0.0.1');

async function whyNotAdmitted(token: TokenFile | undefined, { headers }: IncomingMessage): Promise<Answer | undefined> {
  const admission = (await token?.admits(headers.authorization)) ?? 'admitted';
  if (admission === 'unusable') return plain(503, 'the token file cannot be used; see the log of cri-resize-shim');
  if (admission === 'denied')
    return plain(401, 'the token of metricsTokenFile is missing or wrong', { 'www-authenticate': 'Bearer' });
  return undefined;
}

/** The stream of updates of the page, which is no route: it does not end. */
const LIVE = '/live';

function answerTo(
  { routes, live }: { readonly routes: Readonly<Record<string, Route>>; readonly live: LivePages },
  request: IncomingMessage,
  response: ServerResponse,
  signal: AbortSignal,
): Answer | Promise<Answer> | undefined {
  const [path = '', query = ''] = (request.url ?? '').split('?', 2);
  const route = Object.hasOwn(routes, path) ? routes[path] : undefined;
  if (route === undefined && path !== LIVE)
    return plain(404, `not found; available paths: ${[...Object.keys(routes), LIVE].join(', ')}`);
  if (request.method !== 'GET' && request.method !== 'HEAD')
    return plain(405, 'only GET and HEAD', { allow: 'GET, HEAD' });
  if (route === undefined) return live.open(request, response, new URLSearchParams(query).get('pod') ?? '');
  return route(new URLSearchParams(query), signal);
}

/**
 * Whether the Host header is a loopback address, or missing (browsers always send it). Protects against DNS rebinding:
 * a page of another site whose name resolves to 127.0.0.1 sends its own name.
 */
function isLoopbackHost(header: string | undefined): boolean {
  if (header === undefined) return true;
  const host = header.replace(/:\d{1,5}$/, '').toLowerCase();
  return host === 'localhost' || host === '[::1]' || (isIPv4(host) && host.startsWith('127.'));
}
