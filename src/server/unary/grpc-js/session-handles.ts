import type { Http2Server, ServerHttp2Session } from 'node:http2';
import { type PerformanceEntry, PerformanceObserver, constants } from 'node:perf_hooks';
import type { Server } from '@grpc/grpc-js';
import { GRPC_LIMITS } from '../server-budget.ts';

/** The handles of closed sessions that the last two full collections have left. */
let [newer, older] = [new Set<unknown>(), new Set<unknown>()];
let observer: PerformanceObserver | undefined;

/** Of an entry about a garbage collection. */
interface GcEntry {
  readonly detail?: { readonly kind?: number };
}

/** grpc-js 1.14. It is private, but no public API has the HTTP/2 server behind a connection injector. */
interface Http2Factory {
  createHttp2Server(credentials: unknown): Http2Server;
}

/**
 * Keeps the native part of each HTTP/2 session until a full garbage collection after its end. Node aborts
 * (`current_nghttp2_memory_ == 0` in ~Http2Session) if it collects a session before a stream that was reset while it had header fields:
 * any client can cause that with a malformed request.
 */
export function keepSessionHandles(server: Server): void {
  const factory = server as unknown as Http2Factory;
  const create = factory.createHttp2Server.bind(server);
  factory.createHttp2Server = (credentials) => create(credentials).on('session', keep);
  observer ??= observeCollections();
}

function keep(session: ServerHttp2Session): void {
  const handles = Object.getOwnPropertySymbols(session)
    .filter(({ description = '' }) => description.toLowerCase().includes('handle'))
    .map((symbol): unknown => Reflect.get(session, symbol));
  // Also while it is open: the session forgets its handle when it ends.
  add(handles);
  session.once('close', () => add(handles));
}

/** Beyond the limit, the handles that have been kept the longest go. A handle is in one of the sets only. */
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

/** After a full collection, the streams of sessions that had ended before are gone. */
function observeCollections(): PerformanceObserver {
  const seen = new PerformanceObserver((list) => {
    const isFull = list
      .getEntries()
      .some((entry) => (entry as PerformanceEntry & GcEntry).detail?.kind === constants.NODE_PERFORMANCE_GC_MAJOR);
    if (isFull) [newer, older] = [new Set(), newer];
  });
  seen.observe({ entryTypes: ['gc'] });
  return seen;
}

/** The number of sessions whose handles are kept. */
export const keptHandles = (): number => newer.size + older.size;
