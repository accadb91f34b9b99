import type { OnReadOpts, Socket } from 'node:net';
import { performance } from 'node:perf_hooks';
import type { Duplex } from 'node:stream';
import type { Interception } from './interception.ts';
import { NO_OBSERVER, type SwitchObserver } from './observer.ts';
import type { SwitchCoreOptions } from './options.ts';
import { Switch } from './connection.ts';
import { PairTransport, ReusedReads, SocketTransport } from './transport/index.ts';

export type { Outcome, Side, SkipReason, SwitchObserver } from './observer.ts';
export { NO_OBSERVER } from './observer.ts';

export interface SwitchOptions {
  /**
   * A new socket that is connecting to the backend.
   * @param onread to be given to `net.connect`, beside the path; the switch works without, and long responses cost more
   */
  connectBackend(onread: OnReadOpts): Socket;
  /** One half of a `duplexPair` whose other half has been injected into the local gRPC server. */
  connectLocal(): Duplex;
  readonly interception: Interception;
  readonly observer?: SwitchObserver;
  /** Milliseconds until a response that is to be amended goes as it came. 2000 unless told. */
  readonly amendTimeout?: number;
}

export interface SwitchedConnection {
  /**
   * Tells the client to go (GOAWAY): once it has heard that, no new streams are taken. The connection closes when those that
   * run have ended; watches are ended when nothing else runs.
   */
  shutdown(): void;
  /** Closes at once. Calls that run are cut off. */
  destroy(): void;
  /** Fulfilled when the client's and the backend's sockets are closed. */
  readonly closed: Promise<void>;
  /** Streams whose answer is not complete. */
  readonly activeStreams: number;
}

const MIB = 1_048_576;
/** Sizes as {@link SwitchCoreOptions} explains them. CRI clients take messages of 16 MiB. */
export const LIMITS = {
  headerListLimit: MIB,
  requestLimit: MIB,
  responseLimit: 16 * MIB,
  heldLimit: 32 * MIB,
  amendTimeout: 2000,
  unhurriedDelay: 5,
  readAhead: MIB / 4,
  refuseTimeout: 3000,
  farewellTimeout: 1000,
  lingerTimeout: 1000,
} as const satisfies Partial<SwitchCoreOptions>;

/** Serves one client: connects it to a backend of its own, and its intercepted streams to the local server. */
export function serveConnection(client: Socket, options: SwitchOptions): SwitchedConnection {
  const reads = new ReusedReads();
  const backend = options.connectBackend(reads.options);
  const closed = Promise.all([whenClosed(client), whenClosed(backend)]).then(() => undefined);
  const core = new Switch(
    {
      ...LIMITS,
      interception: options.interception,
      observer: options.observer ?? NO_OBSERVER,
      amendTimeout: options.amendTimeout ?? LIMITS.amendTimeout,
      now: () => performance.now(),
      connectLocal: (events) => new PairTransport(options.connectLocal(), events),
    },
    (side, events) =>
      side === 'client' ? new SocketTransport(client, events) : new SocketTransport(backend, events, reads),
  );
  return {
    shutdown: () => core.shutdown(),
    destroy: () => core.destroy(),
    closed,
    get activeStreams() {
      return core.streams.running;
    },
  };
}

function whenClosed(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    if (socket.closed) resolve();
    else socket.once('close', () => resolve());
  });
}

export type { Exchange, Interception, MaybePromise } from './interception.ts';
