import type { Duplex } from 'node:stream';
import { type ClientProcess, Code, FailureLog, Lazy, type Log, type Metadata } from '../../core/index.ts';
import type { HandledAnswer, HandledCall } from '../proxy/interception.ts';
import { localPair } from '../proxy/pair-transport.ts';
import { metadataOf, processOf } from '../unary/call.ts';
import { type ReceivedCall, serveReceived } from '../unary/serve.ts';
import { CRI_LIMITS, ServerBudget } from '../unary/server-budget.ts';
import { type LocalHandlers, type LocalServerOptions, unaryEnded } from './interceptors.ts';
import type { JsServer } from './js-server.ts';

/** Serves the intercepted calls of all connections in this process. */
export interface LocalServer {
  /**
   * Serves a plain unary call that the proxy has received.
   * @param peer the process of the client, if it is known
   */
  handle(call: HandledCall, respond: (answer: HandledAnswer) => void, peer?: number): void;
  /**
   * Opens a connection for all other calls to a gRPC server: an HTTP/2 byte stream, like a socket to any gRPC server.
   * The server takes 14 MB and is loaded for the first connection, which most nodes never have. The connection ends if
   * the server cannot be loaded.
   * @param peer the process of the client that the connection is for, if it is known
   */
  connect(peer?: number): Duplex;
  /** Closes all connections at once. */
  close(): void;
}

/** Serves these handlers. Each call is counted and logged. */
export function createLocalServer(handlers: LocalHandlers, options: LocalServerOptions): LocalServer {
  const { log, counters } = options;
  const budget = new ServerBudget(CRI_LIMITS, (what) => counters.refused(what));
  const unary = new Map(
    [...handlers].map(([path, handler]) => [path, { handler, ended: unaryEnded(path, options) }] as const),
  );
  const js = new LazyJsServer(log, async () => {
    const { createJsServer } = await import('./js-server.ts');
    return createJsServer(handlers, options, budget);
  });
  return {
    handle(call, respond, peer) {
      const found = unary.get(call.path);
      if (found === undefined) {
        const details = `The server does not implement the method ${call.path}`;
        queueMicrotask(() => respond({ code: Code.UNIMPLEMENTED, details, trailers: [] }));
        return;
      }
      const { handler, ended } = found;
      void serveReceived(handler, new ProxiedCall(call, peer), respond, { log, budget, ended });
    },
    connect(peer) {
      const [ours, theirs] = localPair();
      void js.accept(ours, peer);
      return theirs;
    },
    close: () => js.close(),
  };
}

/** A grpc-js server that is loaded for its first connection. */
class LazyJsServer {
  readonly #server: Lazy<JsServer>;
  #isClosed = false;
  readonly #loads: FailureLog;
  readonly #accepts: FailureLog;

  constructor(log: Log, load: () => Promise<JsServer>) {
    this.#loads = new FailureLog(log, {
      failed: 'server for compressed calls failed to load; its calls end',
      over: 'server for compressed calls loaded after failures',
    });
    this.#accepts = new FailureLog(log, {
      failed: 'server for compressed calls does not accept a connection; its calls end',
      over: 'server for compressed calls accepts connections again',
    });
    this.#server = new Lazy(load);
  }

  /** Serves a connection. Ends it if the server cannot be loaded; the next one tries again. Never rejects. */
  async accept(connection: Duplex, peer: number | undefined): Promise<void> {
    const server = await this.#loaded();
    if (server === undefined || this.#isClosed || connection.destroyed) {
      end(connection);
      return;
    }
    try {
      server.accept(connection, peer);
      this.#accepts.succeeded();
    } catch (error) {
      this.#accepts.failed(error);
      end(connection);
    }
  }

  close(): void {
    this.#isClosed = true;
    void this.#server.ifUsed().then((server) => server?.close());
  }

  /** Returns undefined if the server cannot be loaded. The next call tries again. */
  async #loaded(): Promise<JsServer | undefined> {
    try {
      const server = await this.#server.get();
      this.#loads.succeeded();
      return server;
    } catch (error) {
      this.#loads.failed(error);
      return undefined;
    }
  }
}

/** Ends one half of a pair. The other half sees the end, but not the destruction of this half. */
const end = (connection: Duplex): unknown => connection.end(() => connection.destroy());

/** A call that the proxy has received, as its handler sees it. What few handlers read is made when they do. */
class ProxiedCall implements ReceivedCall {
  #metadata: Metadata | undefined;

  /**
   * @param call its proxy uses {@link steadyNow} as the clock
   * @param peer process id of the client, if known
   */
  constructor(
    private readonly call: HandledCall,
    private readonly peer: number | undefined,
  ) {}

  get path(): string {
    return this.call.path;
  }

  get request(): Buffer {
    return this.call.request;
  }

  get metadata(): Metadata {
    this.#metadata ??= metadataOf(this.call.headers);
    return this.#metadata;
  }

  get deadline(): number {
    return this.call.deadline;
  }

  get cancelled(): boolean {
    return this.call.cancelled;
  }

  get signal(): AbortSignal {
    return this.call.signal;
  }

  get client(): ClientProcess | undefined {
    return this.peer === undefined ? undefined : processOf(this.peer);
  }
}
