import http2, { type ClientHttp2Session } from 'node:http2';
import { syncBuiltinESMExports } from 'node:module';
import net, { type NetConnectOpts, type Socket } from 'node:net';
import { HeadersFinder } from './frame-ends.ts';
import type { Span } from './notes.ts';

/** "PRI * HTTP/2.0 ...": RFC 9113 3.4. */
const PREFACE = 24;

/**
 * Records when this process waits for an answer of the backend: from the write of a request to the end of its answer.
 * Sees calls by node:http2, and those of a client that reads a socket into memory of its own (`onread`).
 */
export function recordBackendCalls(backend: string, now: () => number, spans: Span[]): void {
  recordOfHttp2(now, spans);
  recordOfSockets(backend, now, spans);
}

function recordOfHttp2(now: () => number, spans: Span[]): void {
  const { connect } = http2;
  http2.connect = ((...given: Parameters<typeof connect>): ClientHttp2Session => {
    const session = connect(...given);
    const request = session.request.bind(session);
    session.request = (...asked): ReturnType<typeof request> => {
      const begin = now();
      const stream = request(...asked);
      // The trailers are the end of an answer.
      stream.once('trailers', () => spans.push([begin, now()]));
      return stream;
    };
    return session;
  }) as typeof connect;
}

function recordOfSockets(backend: string, now: () => number, spans: Span[]): void {
  const { connect } = net;
  const recording = (options: NetConnectOpts, listener?: () => void): Socket => {
    const { onread } = options;
    if (!('path' in options) || options.path !== backend || onread === undefined) return connect(options, listener);
    const begun = new Map<number, number>();
    const requests = new HeadersFinder(PREFACE, (id) => void begun.set(id, now()));
    const answers = new HeadersFinder(0, (id, isEnd) => {
      const begin = begun.get(id);
      if (!isEnd || begin === undefined) return;
      begun.delete(id);
      spans.push([begin, now()]);
    });
    const callback: typeof onread.callback = (size, buffer) => {
      answers.push(buffer.subarray(0, size));
      return onread.callback(size, buffer);
    };
    const socket = connect({ ...options, onread: { ...onread, callback } }, listener);
    const write = socket.write.bind(socket);
    socket.write = (bytes: Uint8Array): boolean => {
      requests.push(bytes);
      return write(bytes);
    };
    return socket;
  };
  net.connect = (...given: unknown[]) =>
    typeof given[0] === 'object' && given[0] !== null
      ? recording(given[0] as NetConnectOpts, given[1] as (() => void) | undefined)
      : (connect as (...same: unknown[]) => Socket)(...given);
  // Applies the change also to `import { connect }`.
  syncBuiltinESMExports();
}
