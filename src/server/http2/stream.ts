import type { Amendment } from './amendment.ts';
import type { Lane } from './gate.ts';
import type { LocalSide } from './local-side.ts';
import type { Outcome } from './observer.ts';

interface StreamBase {
  readonly id: number;
  /** The `:path` of its request; empty where there was none. */
  readonly path: string;
  /** Towards the client. */
  readonly down: Lane;
  /** Milliseconds, by the switch's clock. */
  readonly openedAt: number;
  /** The client has sent its last frame. */
  clientEnded: boolean;
  /** The server has sent its last frame: it is here, though perhaps not yet on its way. */
  serverEnded: boolean;
  /** That frame is on its way to the client. */
  delivered: boolean;
  /** The server has reset it: what the client still sends is dropped. */
  reset: boolean;
  /** Response headers have gone to the client. */
  answered: boolean;
  /** How it ends, as far as is known; what it is when nothing else happens. */
  outcome: Outcome;
  status: number | undefined;
}

/** Goes to the backend and back as it is. */
export interface PassStream extends StreamBase {
  readonly kind: 'pass';
}

/** Goes to the backend; its response is held until it is amended. */
export interface AmendStream extends StreamBase {
  readonly kind: 'amend';
  readonly amendment: Amendment;
}

/** Goes to the server in this process. */
export interface LocalStream extends StreamBase {
  readonly kind: 'handle';
  readonly side: LocalSide;
  /** Towards that server. */
  readonly up: Lane;
}

/** A stream that the client opened and that is not over. */
export type Stream = PassStream | AmendStream | LocalStream;

/** The server's last frame is here. */
export function serverEnded(stream: Stream): void {
  stream.serverEnded = true;
  stream.outcome = 'answered';
}
