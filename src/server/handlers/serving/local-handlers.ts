import type { Counters, Log } from '../../../observe/index.ts';
import { type EndedCall, type RawUnaryHandler, callFields } from '../../../grpc/index.ts';

export interface LocalServerOptions {
  readonly log: Log;
  readonly counters: Counters;
}

/** The handlers of the local server, by path. */
export type LocalHandlers = ReadonlyMap<string, RawUnaryHandler>;

/** Returns what counts and logs the handled calls of a path. */
export const unaryEnded =
  (path: string, { log, counters }: LocalServerOptions) =>
  ({ trace, code, elapsedMs }: EndedCall): void => {
    counters.interceptedCall(path, code, elapsedMs, trace.backendMs);
    log.info(callFields(trace, path, code, elapsedMs - trace.backendMs), 'intercepted call');
  };
