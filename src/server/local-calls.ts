import type { Duplex } from 'node:stream';
import {
  type CancelSignal,
  type ClientProcess,
  Code,
  type Counters,
  FailureLog,
  Lazy,
  type Log,
  type Metadata,
} from '../core/index.ts';
import type { HandledAnswer, HandledCall } from './proxy/interception.ts';
import { localPair } from './proxy/pair-transport.ts';
import { metadataOf, processOf, type RawUnaryHandler } from './unary/call.ts';
import { type EndedCall, type ReceivedCall, serveReceived } from './unary/serve.ts';
import { ServerBudget, type ServerLimits } from './unary/server-budget.ts';

/** Serves the calls of a socket that are handled in this process. A client is a process, as far as it is known. */
export interface LocalCalls {
  /** Serves a plain unary call that the proxy has received. */
  handle(call: HandledCall, respond: (answer: HandledAnswer) => void, client?: number): void;
  /**
   * Opens a connection for all other calls to a gRPC server: an HTTP/2 byte stream, like a socket to any gRPC server.
   * The server takes 14 MB and is loaded for the first connection, which most nodes never have. The connection ends if
   * the server cannot be loaded.
   */
  connect(client?: number): Duplex;
  /** Closes all connections at once. */
  close(): void;
}

/** A gRPC server for the calls that are not plain. */
export interface JsServer {
  /**
   * Serves a connection.
   * @param client the process of the client, if it is known
   */
  accept(connection: Duplex, client?: number): void;
  /** Ends all connections and calls. */
  close(): void;
}

/** The handlers of unary calls, by path. */
export type LocalHandlers = ReadonlyMap<string, RawUnaryHandler>;

export interface LocalCallsOptions {
  readonly handlers: LocalHandlers;
  readonly limits: ServerLimits;
  /** Returns what counts and logs the calls of a path that have ended. */
  readonly endedOf: (path: string) => (call: EndedCall) => void;
  /** Loads the server for all other calls. It uses the same budget. */
  readonly loadServer: (budget: ServerBudget) => Promise<JsServer>;
  readonly log: Log;
  readonly counters: Counters;
}

/** Serves these handlers within one budget. */
export function createLocalCalls(options: LocalCallsOptions): LocalCalls {
  const { handlers, limits, endedOf, loadServer, log, counters } = options;
  const budget = new ServerBudget(limits, (what) => counters.refused(what));
  const unary = new Map([...handlers].map(([path, handler]) => [path, { handler, ended: endedOf(path) }] as const));
  const js = new LazyJsServer(log, () => loadServer(budget));
  return {
    handle(call, respond, client) {
      const found = unary.get(call.path);
      if (found === undefined) {
        const details = `The server does not implement the method ${call.path}`;
        queueMicrotask(() => respond({ code: Code.UNIMPLEMENTED, details, trailers: [] }));
        return;
      }
      const { handler, ended } = found;
      void serveReceived(handler, new ProxiedCall(call, client), respond, { log, budget, ended });
    },
    connect(client) {
      const [ours, theirs] = localPair();
      void js.accept(ours, client);
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
      failed: 'gRPC server for streams and compressed calls failed to load; its calls end',
      over: 'gRPC server for streams and compressed calls loaded after failures',
    });
    this.#accepts = new FailureLog(log, {
      failed: 'gRPC server for streams and compressed calls does not accept a connection; its calls end',
      over: 'gRPC server for streams and compressed calls accepts connections again',
    });
    this.#server = new Lazy(load);
  }

  /** Serves a connection. Ends it if the server cannot be loaded; the next one tries again. Never rejects. */
  async accept(connection: Duplex, client: number | undefined): Promise<void> {
    const server = await this.#loaded();
    if (server === undefined || this.#isClosed || connection.destroyed) {
      end(connection);
      return;
    }
    try {
      server.accept(connection, client);
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
   * @param pid process id of the client, if known
   */
  constructor(
    private readonly call: HandledCall,
    private readonly pid: number | undefined,
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

  get signal(): CancelSignal {
    return this.call.signal;
  }

  get client(): ClientProcess | undefined {
    return this.pid === undefined ? undefined : processOf(this.pid);
  }
}
