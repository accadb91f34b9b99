import type { IncomingHttpHeaders } from 'node:http2';
import type { Metadata, Server } from '@grpc/grpc-js';
import type { ClientProcess } from '../../../core/index.ts';
import { processOf } from '../call.ts';

/** The client of a call, for handlers. grpc-js has no way from a call to its connection. A client cannot set it. */
const OWNER_HEADER = 'x-cri-resize-shim-client';

const owners = new WeakMap<object, string>();
let connections = 0;

/**
 * Records whose a connection is: the client's process, and of an unknown one the connection itself.
 * @param session of the connection
 */
export function setOwner(session: object, peer: number | undefined): void {
  owners.set(session, peer === undefined ? `connection ${(connections += 1)}` : `process ${peer}`);
}

/** Adds the client to the headers of one of its calls. */
export function addOwner(headers: IncomingHttpHeaders, session: object | undefined): void {
  const owner = session === undefined ? undefined : owners.get(session);
  if (owner === undefined) Reflect.deleteProperty(headers, OWNER_HEADER);
  else headers[OWNER_HEADER] = owner;
}

/** Returns the client of a call; undefined if its server does not record clients. */
export function ownerOf(call: { readonly metadata: Metadata }): string | undefined {
  const [owner] = call.metadata.get(OWNER_HEADER);
  return owner?.toString();
}

/** The process id of a call's client, put here for its handler. */
const PEER_HEADER = 'x-cri-resize-shim-peer';

/** grpc-js 1.14. It is private, but no public API has the HTTP/2 server behind a connection injector. */
interface Http2Factory {
  createHttp2Server(credentials: unknown): { on(event: 'session', listener: (session: object) => void): unknown };
}

const peers = new WeakMap<object, number>();
const processes = new WeakMap<object, ClientProcess>();

/** Remembers the processes of a server's clients, by session. */
export class SessionPeers {
  #peer: number | undefined;

  constructor(server: Server) {
    const factory = server as unknown as Http2Factory;
    const create = factory.createHttp2Server.bind(server);
    factory.createHttp2Server = (credentials) => {
      const http2 = create(credentials);
      http2.on('session', (session) => {
        if (this.#peer !== undefined) peers.set(session, this.#peer);
      });
      return http2;
    };
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
}

/** Adds the client's process to the headers of a call. A client cannot set it. */
export function notePeer(headers: IncomingHttpHeaders, session: object | undefined): void {
  Reflect.deleteProperty(headers, PEER_HEADER);
  const peer = session === undefined ? undefined : peers.get(session);
  if (peer !== undefined) headers[PEER_HEADER] = String(peer);
}

/** Takes the client's process out of the metadata of a call, which may be forwarded. Reads the name while the client waits. */
export function takePeer(call: { readonly metadata: Metadata }): void {
  const [peer] = call.metadata.get(PEER_HEADER);
  if (peer === undefined) return;
  call.metadata.remove(PEER_HEADER);
  processes.set(call, processOf(Number(peer)));
}

/** Returns the process of a call's client; undefined if it is not known. */
export const clientOf = (call: object): ClientProcess | undefined => processes.get(call);
