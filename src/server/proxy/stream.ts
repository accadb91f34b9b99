import type { Amendment } from './amendment.ts';
import type { Lane } from './flow-control.ts';
import type { LocalSide } from './local-side.ts';
import type { Outcome } from './observer.ts';

/** What streams of all routes have in common. Classes, since one is made for every call: literals cost microseconds. */
abstract class StreamBase {
  /** The client has sent its last frame. */
  clientEnded = false;
  /** The server has sent its last frame: it is here, though perhaps not yet on its way. */
  serverEnded = false;
  /** That frame is on its way to the client. */
  delivered = false;
  /** The server has reset it: what the client still sends is dropped. */
  reset = false;
  /** Response headers have gone to the client. */
  answered = false;
  /** How it ends, as far as is known; what it is when nothing else happens. */
  outcome: Outcome = 'cancelled';
  /** grpc-status, where the observer wants it. */
  status: number | undefined = undefined;
  readonly id: number;
  /** The `:path` of its request; empty where there was none. */
  readonly path: string;
  /** Milliseconds, by the switch's clock. */
  readonly openedAt: number;
  /** Towards the client. */
  readonly down: Lane;

  constructor(path: string, openedAt: number, down: Lane) {
    this.id = down.id;
    this.path = path;
    this.openedAt = openedAt;
    this.down = down;
  }
}

/** Goes to the backend and back as it is. */
export class PassStream extends StreamBase {
  readonly kind = 'pass';
  /** Bytes that the backend may send beyond what the client takes. */
  ahead: number;

  constructor(path: string, openedAt: number, down: Lane, ahead: number) {
    super(path, openedAt, down);
    this.ahead = ahead;
  }
}

/** Goes to the backend; its response is held until it is amended. */
export class AmendStream extends StreamBase {
  readonly kind = 'amend';
  readonly amendment: Amendment;

  constructor(path: string, openedAt: number, down: Lane, amendment: Amendment) {
    super(path, openedAt, down);
    this.amendment = amendment;
  }
}

/** Goes to the server in this process. */
export class LocalStream extends StreamBase {
  readonly kind = 'handle';
  readonly side: LocalSide;
  /** Towards that server. */
  readonly up: Lane;

  constructor(path: string, openedAt: number, down: Lane, up: Lane, side: LocalSide) {
    super(path, openedAt, down);
    this.side = side;
    this.up = up;
  }
}

/** A stream that the client opened and that is not over. */
export type Stream = PassStream | AmendStream | LocalStream;

/** The server's last frame is here. */
export function serverEnded(stream: Stream): void {
  stream.serverEnded = true;
  stream.outcome = 'answered';
}
