import { type IncomingMessage, request as requestPlain } from 'node:http';
import { type RequestOptions, request as requestTls } from 'node:https';
import type { Readable } from 'node:stream';
import * as z from 'zod/mini';
import type { Connection } from './connection.ts';
import { ApiRefusal, ApiUnreached } from './errors.ts';

export interface ApiRequest {
  /** PATCH sends a JSON merge patch (RFC 7386), or a strategic merge patch of Kubernetes. */
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH';
  /** Relative to the path of the server URL. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly accept?: string;
  /** JSON. */
  readonly body?: unknown;
  readonly isStrategic?: boolean;
  /** Maximum time without data in milliseconds. The connect counts. */
  readonly idleMs: number;
  readonly signal: AbortSignal;
}

/** Sends a request. Returns its body. Rejects with ApiRefusal if not 2xx, ApiUnreached, or an error of Node. */
export type Api = (request: ApiRequest) => Promise<Readable>;

/** A dead peer is detected after this time and ten probes, one per second. */
const KEEP_ALIVE_MS = 15_000;
const LONGEST_REFUSAL = 64 * 1024;
const LONGEST_RETRY_AFTER_S = 60;

const statusSchema = z.object({ kind: z.literal('Status'), message: z.string() });

/** Returns a client that asks `connect` for the connection of each request. */
export function apiOf(connect: () => Promise<Connection>): Api {
  return async (request) => {
    const connection = await connect();
    const response = await send(connection, request);
    const { statusCode = 0 } = response;
    if (statusCode >= 200 && statusCode < 300) return response;
    throw await refusalOf(statusCode, response);
  };
}

function send({ server, options }: Connection, request: ApiRequest): Promise<IncomingMessage> {
  const { method, query = {}, accept = 'application/json', idleMs, signal, isStrategic = false } = request;
  const url = new URL(server);
  url.pathname = url.pathname.replace(/\/$/, '') + request.path;
  url.search = new URLSearchParams(query).toString();
  const body = request.body === undefined ? undefined : JSON.stringify(request.body);
  const headers = {
    ...(options.headers as Record<string, string>),
    accept,
    'user-agent': 'cri-resize-shim',
    ...(body !== undefined && {
      'content-type':
        method === 'PATCH' ? `application/${isStrategic ? 'strategic-' : ''}merge-patch+json` : 'application/json',
      'content-length': String(Buffer.byteLength(body)),
    }),
  };
  // The option counts from the socket on. ClientRequest.setTimeout would count only from the connect on, which may hang
  // for minutes.
  const all: RequestOptions = { ...options, method, headers, signal, timeout: idleMs };
  return new Promise((resolve, reject) => {
    const call = url.protocol === 'http:' ? requestPlain(url, all) : requestTls(url, all);
    call.setSocketKeepAlive(true, KEEP_ALIVE_MS);
    const silent = (): void => {
      const error = new ApiUnreached(`no data for ${idleMs} ms`);
      call.destroy(error);
      // A request that has no socket yet does not emit the error.
      reject(error);
    };
    call.on('timeout', silent);
    // A proxy returns its socket only once it has connected.
    const unconnected = setTimeout(silent, idleMs);
    call.on('socket', () => clearTimeout(unconnected));
    call.on('close', () => clearTimeout(unconnected));
    call.on('response', resolve);
    call.on('error', reject);
    call.end(body);
  });
}

async function refusalOf(status: number, response: IncomingMessage): Promise<ApiRefusal> {
  const seconds = Number(response.headers['retry-after'] ?? 0);
  const retryAfterMs = Number.isFinite(seconds) ? Math.min(Math.max(seconds, 0), LONGEST_RETRY_AFTER_S) * 1000 : 0;
  const text = await readText(response, LONGEST_REFUSAL).catch(() => '');
  return new ApiRefusal(status, messageIn(text), retryAfterMs);
}

/** Returns the message of a Status object. Ignores other bodies: a proxy may quote our request with its token. */
function messageIn(text: string): string {
  try {
    const parsed = statusSchema.safeParse(JSON.parse(text));
    return parsed.success ? parsed.data.message.slice(0, 300) : '';
  } catch {
    return '';
  }
}

/** Reads a body. Rejects with ApiUnreached if it is longer than `longest` characters. */
export async function readText(response: Readable, longest: number): Promise<string> {
  let text = '';
  response.setEncoding('utf8');
  for await (const chunk of response as AsyncIterable<string>) {
    text += chunk;
    if (text.length > longest) throw new ApiUnreached(`the response is longer than ${longest} characters`);
  }
  return text;
}

/**
 * Parses the body of a response. Throws ApiUnreached with the expected object, because the parsers' messages quote the
 * body.
 * @param what the requested object: `a node`
 */
export function parsedResponse<Value>(schema: z.ZodMiniType<Value>, text: string, what: string): Value {
  try {
    return schema.parse(JSON.parse(text));
  } catch {
    throw new ApiUnreached(`the response is not ${what}`);
  }
}
