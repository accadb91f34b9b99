import { CgroupTree } from './cgroups/index.ts';
import type { Config } from './config/index.ts';
import type { Counters, Log } from './observe/index.ts';
import { Backend } from './runtime/index.ts';
import { Journal } from './sandbox/journal/index.ts';
import { PodJournal, Registry, createResizeContext, describePod, recover, resizePod } from './sandbox/index.ts';
import { type RunningResizeApi, startResizeApi } from './resize-api.ts';
import { createInterceptors, localHandlers } from './server/interceptors/index.ts';
import type { RawUnaryHandler } from './server/call.ts';
import { type Interceptors, noInterceptors } from './server/routes.ts';
import { MemoryVolumes } from './tmpfs/index.ts';

/** All that acts on resizes, put together. */
export interface Resizing {
  readonly interceptors: Interceptors;
  /** What the local server serves. */
  readonly handlers: ReadonlyMap<string, RawUnaryHandler>;
  /**
   * Learns what is on the node, and serves the resize API. Called once the socket is ours: until then another shim may be at
   * work. Rejects when the resize API cannot be served.
   */
  begin(): Promise<void>;
  /** Resolves, should it ever, when the resize API's listening has failed. */
  readonly failure: Promise<Error>;
  /** Lets what is under way end for so many milliseconds. */
  close(graceMs: number): Promise<void>;
}

/** Acts on nothing: `--intercept=false`. */
export const noResizing: Resizing = {
  interceptors: noInterceptors,
  handlers: new Map(),
  begin: () => Promise.resolve(),
  failure: new Promise(() => undefined),
  close: () => Promise.resolve(),
};

/** Puts the folders together: a backend client, what is known of the node, the kernel's files, the interceptors. */
export function createResizing(config: Config, log: Log, counters: Counters): Resizing {
  const backend = new Backend(`unix://${config.containerRuntimeEndpoint}`);
  const registry = new Registry(backend, log);
  const volumes = new MemoryVolumes({ kubeletRoot: config.kubeletRoot });
  const journal = new PodJournal(Journal.open(config.stateFolder, { log, counters }));
  const tree = new CgroupTree(config.cgroupRoot);
  const { reclaimTimeout } = config;
  const context = createResizeContext({ registry, backend, journal, tree, volumes, reclaimTimeout, log, counters });
  const interceptors = createInterceptors(context, backend);
  let api: RunningResizeApi | undefined;
  let failed: (error: Error) => void = () => undefined;
  const failure = new Promise<Error>((resolve) => (failed = resolve));
  return {
    interceptors,
    handlers: localHandlers(interceptors, backend),
    async begin() {
      if (config.resizeListen !== '') {
        api = await startResizeApi(config, {
          ...{ registry, backend, log, counters },
          resizePod: (sandboxId, desired, options) => resizePod(context, sandboxId, desired, options),
          describePod: (sandboxId) => describePod(context, sandboxId),
          store: {
            persist: (podUid, records) => journal.setResizes(podUid, records),
            restore: async () => {
              await journal.restored();
              return [...journal.resizes()].map(([podUid, records]) => ({ podUid, records }));
            },
          },
        });
        void api.failure.then(failed);
      }
      // At each connection, the first one included: pods may have come and gone without us.
      let restored: Promise<void> | undefined;
      backend.onConnected(() => void recover(context).then(() => (restored ??= api?.restore())));
    },
    failure,
    async close(graceMs) {
      await api?.close(graceMs);
      backend.close();
    },
  };
}
