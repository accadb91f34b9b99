import { CgroupTree } from './cgroups/index.ts';
import type { Config } from './config/index.ts';
import type { Counters, Log } from './observe/index.ts';
import { Backend } from './runtime/index.ts';
import { Registry, createResizeContext } from './sandbox/index.ts';
import { createInterceptors, localHandlers } from './server/interceptors/index.ts';
import type { RawUnaryHandler } from './server/call.ts';
import { type Interceptors, noInterceptors } from './server/routes.ts';
import { MemoryVolumes } from './tmpfs/index.ts';

/** All that acts on resizes, put together. */
export interface Resizing {
  readonly interceptors: Interceptors;
  /** What the local server serves. */
  readonly handlers: ReadonlyMap<string, RawUnaryHandler>;
  /** Learns what is on the node. Called once the socket is ours: until then another shim may be at work. */
  begin(): void;
  close(): void;
}

/** Acts on nothing: `--intercept=false`. */
export const noResizing: Resizing = {
  interceptors: noInterceptors,
  handlers: new Map(),
  begin: () => undefined,
  close: () => undefined,
};

/** Puts the folders together: a backend client, what is known of the node, the kernel's files, the interceptors. */
export function createResizing(config: Config, log: Log, counters: Counters): Resizing {
  const backend = new Backend(`unix://${config.containerRuntimeEndpoint}`);
  const registry = new Registry(backend, log);
  const volumes = new MemoryVolumes({ kubeletRoot: config.kubeletRoot });
  const context = createResizeContext({
    registry,
    backend,
    tree: new CgroupTree(config.cgroupRoot),
    volumes,
    reclaimTimeout: config.reclaimTimeout,
    log,
    counters,
  });
  const interceptors = createInterceptors(context, backend);
  return {
    interceptors,
    handlers: localHandlers(interceptors, backend),
    begin() {
      // At each connection, the first one included: pods may have come and gone without us.
      backend.onConnected(() => void registry.recover());
    },
    close: () => backend.close(),
  };
}
