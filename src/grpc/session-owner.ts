import type { IncomingHttpHeaders } from 'node:http2';
import type { Metadata } from '@grpc/grpc-js';

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
