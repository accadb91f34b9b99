import { type Http2Server, type ServerHttp2Session, constants } from 'node:http2';
import type { Server } from '@grpc/grpc-js';
import { steadyNow } from '../../../core/index.ts';
import { type Crowd, type Held, roomFor } from '../connection-room.ts';
import { setOwner } from './session-owner.ts';

/** grpc-js 1.14. It is private, but no public API has the HTTP/2 server behind a connection injector. */
interface Http2Factory {
  createHttp2Server(credentials: unknown): Http2Server;
}

interface OpenSession extends Held {
  readonly session: ServerHttp2Session;
}

const TOO_MANY = Buffer.from('too many connections');

/** Limits the connections of a gRPC server, by the rules of {@link roomFor}. */
export class SessionLimit {
  readonly #limit: number;
  readonly #tooMany: (crowd: Crowd | undefined) => void;
  /** The oldest come first. */
  readonly #open = new Map<ServerHttp2Session, OpenSession>();
  #peer: number | undefined;

  /** @param tooMany called for each connection that is refused or ended because there are too many */
  constructor(server: Server, limit: number, tooMany: (crowd: Crowd | undefined) => void) {
    this.#limit = limit;
    this.#tooMany = tooMany;
    const factory = server as unknown as Http2Factory;
    const create = factory.createHttp2Server.bind(server);
    factory.createHttp2Server = (credentials) =>
      create(credentials).on('session', (session) => this.#add(session, this.#peer));
  }

  /** Runs what creates the session of a connection. */
  accept(peer: number | undefined, create: () => void): void {
    this.#peer = peer;
    try {
      create();
    } finally {
      this.#peer = undefined;
    }
  }

  #add(session: ServerHttp2Session, peer: number | undefined): void {
    if (this.#open.size >= this.#limit) {
      const { crowd, ends } = roomFor(peer, [...this.#open.values()]);
      this.#tooMany(crowd);
      end(ends?.session ?? session);
      if (ends === undefined) return;
      this.#open.delete(ends.session);
    }
    setOwner(session, peer);
    const held = { session, peer, activeStreams: 0, calls: 0, lastUsed: steadyNow() };
    this.#open.set(session, held);
    session.once('close', () => this.#open.delete(session));
    session.on('stream', (stream) => {
      held.activeStreams += 1;
      stream.once('close', () => {
        held.activeStreams -= 1;
        held.calls += 1;
        held.lastUsed = steadyNow();
      });
    });
  }
}

/** Sends GOAWAY, cuts off the calls that run, and closes. */
function end(session: ServerHttp2Session): void {
  session.goaway(constants.NGHTTP2_ENHANCE_YOUR_CALM, 0, TOO_MANY);
  session.destroy();
}
