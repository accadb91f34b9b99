import type { Handle, Interception, ProxyObserver } from './interception.ts';
import type { SharedBudget } from './shared-budget.ts';
import type { Transport, TransportEvents } from './transport.ts';

/** The settings of one proxied connection. Sizes in bytes, times in milliseconds. */
export interface ProxyConnectionOptions {
  readonly interception: Interception;
  readonly observer: ProxyObserver;
  /** Serves plain handled calls. Without it, the local server serves all. */
  readonly handle?: Handle | undefined;
  /** Opens a connection to the local server, which reports to `events`. */
  readonly connectLocal: (events: TransportEvents) => Transport;
  readonly now: () => number;
  /** How long an amendment may take before the response is sent as received. */
  readonly amendTimeout: number;
  /**
   * How long a deferred write (an answer to a PING, for example) waits for other data in the same direction. 0: not at
   * all.
   */
  readonly deferredWriteDelay: number;
  /** Bytes the backend may send beyond the client's connection window and each long response's. Queued here. */
  readonly readAhead: number;
  /** The largest encoded header block of a server. */
  readonly headerListLimit: number;
  /** The largest header list of the client, encoded and decoded. */
  readonly clientHeaderListLimit: number;
  /** Streams of the client that are open at the same time. Further ones are reset with REFUSED_STREAM. */
  readonly streamLimit: number;
  /** SETTINGS of one side that the other has not acknowledged. */
  readonly settingsLimit: number;
  /** Bytes that may wait here for the client; beyond it, the backend gets one default window at a time. */
  readonly queueLimit: number;
  /** Used by all connections together. */
  readonly shared: SharedBudget;
  /** The longest request that is copied for an amendment. The response to a longer one is not amended. */
  readonly requestLimit: number;
  /** The longest response that is held. A longer one is not amended. */
  readonly responseLimit: number;
  /** The longest request that is held back. A longer one is forwarded at once. */
  readonly delayLimit: number;
  /** The longest request for the local server, with the prefix of its message. */
  readonly handledRequestLimit: number;
  /** How long the client may take to send its first SETTINGS. */
  readonly handshakeTimeout: number;
  /** How long a connection without a backend waits for a call to answer, or at shutdown for its SETTINGS. */
  readonly refuseTimeout: number;
  /**
   * How long the client may take to acknowledge the first GOAWAY of a graceful shutdown. The second one follows then.
   */
  readonly gracefulShutdownTimeout: number;
  /** How long the other side may take to close its direction of a connection that the proxy has closed. */
  readonly lingerTimeout: number;
  /** How long the client may take to read the last answers of a connection that the proxy has closed. */
  readonly deliveryTimeout: number;
}
