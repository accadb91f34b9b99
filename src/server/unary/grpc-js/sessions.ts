import type { Http2Server, ServerHttp2Session } from 'node:http2';
import { constants as gcConstants, type PerformanceEntry, PerformanceObserver } from 'node:perf_hooks';
import type { Server } from '@grpc/grpc-js';
import type { ClientProcess } from '../../../core/index.ts';
import { processOf } from '../call.ts';
import { GRPC_LIMITS } from '../server-budget.ts';

/** grpc-js 1.14. It is private, but no public API has the HTTP/2 server behind a connection injector. */
interface Http2Factory {
  createHttp2Server(credentials: unknown): Http2Server;
}

/** Calls `added` with each new HTTP/2 session. Call it before the server creates its connection injector. */
export function onSession(server: Server, added: (session: ServerHttp2Session) => void): void {
  const factory = server as unknown as Http2Factory;
  const create = factory.createHttp2Server.bind(server);
  factory.createHttp2Server = (credentials) => create(credentials).on('session', added);
}

const PROCESS = 'process ';
let connections = 0;

/**
 * Sets the owner of a connection: the client's process id, or the connection itself if the process is unknown. grpc-js
 * reports the remote address of a session's socket to the handlers of its calls, and reads nothing more of it.
 */
export function setOwner(session: ServerHttp2Session, peer: number | undefined): void {
  const remoteAddress = peer === undefined ? `connection ${(connections += 1)}` : `${PROCESS}${peer}`;
  Object.defineProperty(session, 'socket', { value: { remoteAddress } });
}

/** Returns the owner of a call's connection. */
export const ownerOf = (call: { getPeer(): string }): string => call.getPeer();

const peerIn = (owner: string | undefined): number | undefined =>
  owner?.startsWith(PROCESS) === true ? Number(owner.slice(PROCESS.length)) : undefined;

/** Returns the process of a call's client; undefined if it is not known. Call it while the client waits. */
export function clientOf(call: { getPeer(): string }): ClientProcess | undefined {
  const peer = peerIn(ownerOf(call));
  return peer === undefined ? undefined : processOf(peer);
}

/** The handles of closed sessions that the last two full collections have left. */
let [newer, older] = [new Set<unknown>(), new Set<unknown>()];
let observer: PerformanceObserver | undefined;

/** Part of a performance entry about a garbage collection. */
interface GcEntry {
  readonly detail?: { readonly kind?: number };
}

/**
 * Keeps the native part of an HTTP/2 session until a full garbage collection after its end. Node aborts
 * (`current_nghttp2_memory_ == 0` in ~Http2Session) if it collects a session before a stream that was reset while it
 * had header fields: any client can cause that with a malformed request.
 */
export function keepHandles(session: ServerHttp2Session): void {
  observer ??= observeCollections();
  const handles = Object.getOwnPropertySymbols(session)
    .filter(({ description = '' }) => description.toLowerCase().includes('handle'))
    .map((symbol): unknown => Reflect.get(session, symbol));
  // Also while it is open: the session forgets its handle when it ends.
  add(handles);
  session.once('close', () => add(handles));
}

/** Adds handles. Above the limit, removes the oldest ones. A handle is only in one of the sets. */
function add(handles: readonly unknown[]): void {
  for (const handle of handles) {
    older.delete(handle);
    newer.add(handle);
  }
  for (const set of [older, newer])
    for (const handle of set) {
      if (keptHandles() <= GRPC_LIMITS.keptSessions) return;
      set.delete(handle);
    }
}

/** Releases handles: after a full collection, the streams of sessions that had ended before are gone. */
function observeCollections(): PerformanceObserver {
  const seen = new PerformanceObserver((list) => {
    const isFull = list
      .getEntries()
      .some((entry) => (entry as PerformanceEntry & GcEntry).detail?.kind === gcConstants.NODE_PERFORMANCE_GC_MAJOR);
    if (isFull) [newer, older] = [new Set(), newer];
  });
  seen.observe({ entryTypes: ['gc'] });
  return seen;
}

/** The number of sessions whose handles are kept. */
export const keptHandles = (): number => newer.size + older.size;
