import type { Config } from '../config/index.ts';
import type { Counters, Log, ReadinessReport } from '../observe/index.ts';
import type { PodResizes } from './pod-resizes.ts';
import { openResizeApi } from '../api/index.ts';
import { listen, listenOnInherited, loadPeerOf } from '../server/index.ts';
import type { PassedSocket } from '../systemd/index.ts';
import { systemClock } from '../core/concurrency/index.ts';

export interface ResizeApiParts {
  readonly podResizes: PodResizes;
  readonly readiness: () => Promise<ReadinessReport>;
  /** The socket of the API, if systemd created it. */
  readonly passed: PassedSocket | undefined;
  readonly log: Log;
  readonly counters: Counters;
}

/** The running resize API. */
export interface RunningResizeApi {
  /** Resolves if listening fails. */
  readonly failure: Promise<Error>;
  /** Accepts no further calls, and waits for running calls, at most `graceMs`. */
  close(graceMs: number): Promise<void>;
}

/** Serves the resize API at `--resize-listen`. Call it after the CRI socket is open: both may be in the same folder. */
export async function startResizeApi(config: Config, parts: ResizeApiParts): Promise<RunningResizeApi> {
  const { podResizes, readiness, passed, log, counters } = parts;
  const { resizes, pods } = podResizes;
  const { resizeListen: path, resizeSocketMode: mode } = config;
  return openResizeApi({
    path: passed?.path ?? path,
    listen: (onConnection) =>
      passed === undefined
        ? listen({ path, rights: { mode }, onConnection, log })
        : listenOnInherited({ ...passed, onConnection }),
    pods,
    resizes,
    peerOf: await loadPeerOf(log),
    clock: systemClock,
    readiness,
    log,
    counters,
  });
}
