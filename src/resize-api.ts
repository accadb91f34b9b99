import { basename, dirname } from 'node:path';
import type { Config } from './config/index.ts';
import type { Counters, Log, ReadinessReport } from './observe/index.ts';
import type { Backend } from './runtime/index.ts';
import {
  type DescribePod,
  type Registry,
  type ResizePod,
  type ResizeStore,
  Resizes,
  podDirectory,
  systemClock,
} from './sandbox/index.ts';
import { openResizeApi } from './server/resize-api/index.ts';

export interface ResizeApiParts {
  readonly registry: Registry;
  readonly backend: Backend;
  readonly resizePod: ResizePod;
  readonly describePod: DescribePod;
  readonly store: ResizeStore;
  readonly readiness: () => Promise<ReadinessReport>;
  readonly log: Log;
  readonly counters: Counters;
}

/** The resize API at work. */
export interface RunningResizeApi {
  readonly resizes: Resizes;
  /** Resolves, should it ever, when listening has failed. */
  readonly failure: Promise<Error>;
  /** Takes up what an earlier shim has left. Called once, when the registry has been compared with the backend. */
  restore(): Promise<void>;
  /** Starts nothing more, and lets what is under way end for so many milliseconds: the journal knows of the rest. */
  close(graceMs: number): Promise<void>;
}

const SANDBOX_READY = 0;

/** Serves the resize API at `--resize-listen`. To be called after the front door has its socket, whose folder it may share. */
export async function startResizeApi(config: Config, parts: ResizeApiParts): Promise<RunningResizeApi> {
  const { registry, backend, resizePod, describePod, store, readiness, log, counters } = parts;
  const resizes = new Resizes({ resizePod, store, clock: systemClock, random: Math.random, log });
  registry.watch({
    podAdded: () => undefined,
    podRemoved: ({ sandboxId }) => resizes.podRemoved(sandboxId),
    containerRemoved: () => undefined,
  });
  const isReady = async (sandboxId: string): Promise<boolean> => {
    const { status } = await backend.runtime('PodSandboxStatus', { pod_sandbox_id: sandboxId });
    return status?.state === SANDBOX_READY;
  };
  const api = await openResizeApi({
    path: config.resizeListen,
    mode: config.resizeSocketMode,
    pods: podDirectory({ registry, isReady, describePod }),
    ...{ resizes, clock: systemClock, readiness, log, counters },
  });
  return {
    resizes,
    failure: api.failure,
    restore: () => resizes.restore(async (sandboxId) => (await registry.pod(sandboxId)) !== undefined),
    async close(graceMs) {
      const ended = resizes.close();
      const late = new Promise<void>((resolve) => setTimeout(resolve, graceMs).unref());
      await Promise.race([ended, late]);
      await api.close(graceMs);
    },
  };
}

/** The sockets of ours that may lie beside the front door's, for `neighbours` of its listener. */
export function neighboursOf(config: Config): readonly string[] {
  const shares = config.resizeListen !== '' && dirname(config.resizeListen) === dirname(config.listen);
  return shares ? [basename(config.resizeListen)] : [];
}
