import type { Interception } from './interception.ts';
import type { SwitchObserver } from './observer.ts';
import type { Transport, TransportEvents } from './transport/index.ts';

/** What the switch needs to know. Sizes in bytes, times in milliseconds. */
export interface SwitchCoreOptions {
  readonly interception: Interception;
  readonly observer: SwitchObserver;
  /** Opens a connection to the local server, which tells `events`. */
  readonly connectLocal: (events: TransportEvents) => Transport;
  readonly now: () => number;
  readonly amendTimeout: number;
  /** How long what nobody waits for (the answer to a ping, say) may wait itself for something else to go the same way. */
  readonly unhurriedDelay: number;
  /** Bytes that the backend may send beyond what the client's windows take: kept here until they do. */
  readonly readAhead: number;
  /** A header list from the client, decoded; and any header block, as it comes. */
  readonly headerListLimit: number;
  /** A request that is read on the way; a longer one is not amended. */
  readonly requestLimit: number;
  /** A response that is held; a longer one is not amended. */
  readonly responseLimit: number;
  /** All that is held at one time. */
  readonly heldLimit: number;
  /** How long a connection without a backend waits for a call that it can answer. */
  readonly refuseTimeout: number;
  /** How long a client may take to answer that it has heard that we go, before it is told which of its calls are served. */
  readonly farewellTimeout: number;
  /** How long the other side may take to close, after it was told to. */
  readonly lingerTimeout: number;
}
