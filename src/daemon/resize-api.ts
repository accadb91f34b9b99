import { basename, dirname } from 'node:path';
import type { Config } from '../config/index.ts';
import type { Counters, Log, ReadinessReport } from '../observe/index.ts';
import type { PodResizes } from './pod-resizes.ts';
import { openResizeApi } from '../api/index.ts';
import { listen, listenOnPassed } from '../server/index.ts';
import type { PassedSocket } from '../systemd/index.ts';
import { systemClock } from '../core/concurrency/index.ts';

export interface ResizeApiParts {
  readonly podResizes: PodResizes;
  readonly readiness: () => Promise<ReadinessReport>;
  /** Its socket, where systemd has made it. */
  readonly passed: PassedSocket | undefined;
  readonly log: Log;
  readonly counters: Counters;
}

/** The resize API at work. */
export interface RunningResizeApi {
  /** Resolves, should it ever, when listening has failed. */
  readonly failure: Promise<Error>;
  /** Takes no more calls, and lets those under way end for so many milliseconds. */
  close(graceMs: number): Promise<void>;
}

/** Serves the resize API at `--resize-listen`. To be called after the front door has its socket, whose folder it may share. */
export async function startResizeApi(config: Config, parts: ResizeApiParts): Promise<RunningResizeApi> {
  const { podResizes, readiness, passed, log, counters } = parts;
  const { resizes, pods } = podResizes;
  const { resizeListen: path, resizeSocketMode: mode } = config;
  return openResizeApi({
    path: passed?.path ?? path,
    listen: (onConnection) =>
      passed === undefined
        ? listen({ path, rights: { mode }, onConnection, log })
        : listenOnPassed({ ...passed, onConnection }),
    ...{ pods, resizes, clock: systemClock, readiness, log, counters },
  });
}

/** The sockets of ours that may lie beside the front door's, for `neighbours` of its listener. */
export function neighboursOf(config: Config): readonly string[] {
  const { resizeListen, metricsBind } = config;
  const others = [resizeListen, metricsBind.kind === 'unix' ? metricsBind.path : ''];
  return others.filter((path) => path !== '' && dirname(path) === dirname(config.listen)).map((path) => basename(path));
}
