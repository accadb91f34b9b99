import { Busctl, type CgroupDriverName, DriverCgroupTree } from '../cgroups/index.ts';
import { type Config, version } from '../config/index.ts';
import { messageOf } from '../core/errors/index.ts';
import type { KubernetesWatch } from '../kubernetes/annotations/index.ts';
import type { Counters, Log, NodeReadings, ReadinessReport } from '../observe/index.ts';
import { Backend, BackendCgroupDriver } from '../runtime/index.ts';
import { watchKubernetes } from './annotations.ts';
import { createPodResizes } from './pod-resizes.ts';
import { type RunningResizeApi, startResizeApi } from './resize-api.ts';
import type { PassedSocket } from '../systemd/index.ts';
import { type KubeletPlace, MemoryVolumes } from '../tmpfs/index.ts';
import {
  type Interceptors,
  type Listener,
  createInterceptors,
  listenOnPassed,
  localHandlers,
  noInterceptors,
} from '../server/index.ts';
import type { RawUnaryHandler } from '../grpc/index.ts';
import {
  Journal,
  type Overview,
  PodJournal,
  RecentResizes,
  Recovery,
  type ResizeStore,
  createResizeContext,
  describePod,
  overviewOf,
  readinessOf,
  recover,
  resizePod,
} from '../resize/index.ts';
import { KubeletFiles } from '../kubelet/index.ts';
import { Registry, volumeTotals } from '../sandbox/index.ts';
import { systemClock } from '../core/concurrency/index.ts';

/** All that acts on resizes, put together. */
export interface Resizing {
  readonly interceptors: Interceptors;
  /** What the local server serves. */
  readonly handlers: ReadonlyMap<string, RawUnaryHandler>;
  /**
   * Learns what is on the node, and serves the resize API. Called once the socket is ours: until then another shim may be at
   * work. Never rejects: pods come and go without the resize API too.
   */
  begin(): Promise<void>;
  /** Whether resizes can be carried out. Never rejects. */
  readiness(): Promise<ReadinessReport>;
  readings(): NodeReadings;
  /** Rejects with BACKEND_UNAVAILABLE. */
  overview(): Promise<Overview>;
  /** Lets what is under way end for so many milliseconds. */
  close(graceMs: number): Promise<void>;
}

/** Acts on nothing: `--intercept=false`. Who connects to a socket of the resize API that systemd holds hears at once that there is none. */
export function noResizing(passed: PassedSocket | undefined): Resizing {
  let refusing: Listener | undefined;
  return {
    interceptors: noInterceptors,
    handlers: new Map(),
    async begin() {
      if (passed !== undefined)
        refusing = await listenOnPassed({ ...passed, onConnection: (connection) => connection.destroy() });
    },
    readiness: () =>
      Promise.resolve({ ready: true, checks: [{ name: 'intercept', ready: true, says: 'off: every call passes' }] }),
    readings: () => ({ pods: 0, volumes: { count: 0, size: 0, used: 0 }, unfinished: [], foresight: false }),
    overview: () => Promise.resolve({ pods: [], recent: [] }),
    close: async () => refusing?.close(),
  };
}

/**
 * Puts the folders together: a backend client, what is known of the node, the kernel's files, the interceptors.
 * @param sockets `passed`: the socket of the resize API, where systemd has made it; `connections`: how many clients the CRI socket has
 */
export function createResizing(
  config: Config,
  log: Log,
  counters: Counters,
  { passed, connections }: { readonly passed: PassedSocket | undefined; readonly connections: () => number },
): Resizing {
  const backend = new Backend(`unix://${config.containerRuntimeEndpoint}`);
  const registry = new Registry(backend, log);
  const volumes = new MemoryVolumes(placeOfVolumes(config));
  const opened = Journal.open(config.stateFolder, { log, counters, clock: systemClock });
  const journal = new PodJournal(opened);
  const ofBackend = new BackendCgroupDriver(backend);
  const driver = (): Promise<CgroupDriverName> => cgroupDriver(config, ofBackend);
  const tree = new DriverCgroupTree({ root: config.cgroupRoot, driver, systemd: new Busctl() });
  const { kubeletRoot, reclaimTimeout } = config;
  // Where nobody can look at them, resizes are not kept.
  const kept = config.metricsBind.kind === 'none' ? {} : { recent: new RecentResizes() };
  const kubelet = config.foresight
    ? new KubeletFiles({
        kubeletRoot,
        clock: systemClock,
        log,
        counters,
        onChange: () => context.decreaseReclaimer.check(),
      })
    : undefined;
  const context = createResizeContext({
    ...{ registry, backend, journal, tree, volumes, reclaimTimeout, log, counters },
    ...kept,
    ...(kubelet && { kubelet }),
  });
  const readiness = async (): Promise<ReadinessReport> => {
    const { ready, checks } = await readinessOf(context);
    // Beside the rest: without the API server resizes are carried out all the same.
    return {
      ready,
      checks: kubernetes === undefined ? checks : [...checks, { ...kubernetes.check(), isOptional: true }],
    };
  };
  const interceptors = createInterceptors(context, backend, { version, readiness, connections });
  const recovery = new Recovery(() => recover(context), systemClock);
  const podResizes = createPodResizes({
    ...{ registry, backend, store: storeIn(journal), log, counters },
    resizePod: (sandboxId, desired, options) => resizePod(context, sandboxId, desired, options),
    describePod: (sandboxId) => describePod(context, sandboxId),
  });
  let api: RunningResizeApi | undefined;
  let kubernetes: KubernetesWatch | undefined;
  let takenUp: Promise<void> | undefined;
  let isClosed = false;
  const without = (error: unknown): void => {
    log.error({ listen: passed?.path ?? config.resizeListen, error: messageOf(error) }, 'the resize API is not served');
  };
  const serveApi = async (): Promise<RunningResizeApi | undefined> => {
    if (config.resizeListen === '' && passed === undefined) return undefined;
    try {
      const served = await startResizeApi(config, { podResizes, readiness, passed, log, counters });
      void served.failure.then(without);
      return served;
    } catch (error) {
      without(error);
      return undefined;
    }
  };
  /** Once pods are known: what an earlier shim has left, then what asks for more. */
  const takeUp = async (): Promise<void> => {
    if (api === undefined && config.kubeconfig === '') return;
    await podResizes.restore();
    if (config.kubeconfig === '' || isClosed) return;
    try {
      kubernetes = await watchKubernetes(config, { context, podResizes, log });
    } catch (error) {
      log.error({ error: messageOf(error) }, 'annotations of pods are not watched');
    }
  };
  return {
    interceptors,
    handlers: localHandlers(interceptors, backend),
    readiness,
    readings: () => ({
      pods: registry.pods.length,
      volumes: volumeTotals(volumes),
      unfinished: podResizes.resizes.unfinished,
      foresight: kubelet?.isPresent ?? false,
    }),
    overview: oneAtATime(() => overviewOf(context, podResizes.pods)),
    async begin() {
      kubelet?.begin();
      api = await serveApi();
      // At each connection, the first one included: pods may have come and gone without us.
      backend.onConnected(() => {
        ofBackend.reconnected();
        void recovery.begin().then(() => (takenUp ??= takeUp()));
      });
    },
    async close(graceMs) {
      isClosed = true;
      kubelet?.close();
      context.decreaseReclaimer.close();
      recovery.close();
      // At once, and when it is only about to begin then.
      void takenUp?.then(() => kubernetes?.close());
      const until = Date.now() + graceMs;
      await podResizes.close(graceMs);
      await api?.close(Math.max(0, until - Date.now()));
      backend.close();
      await (await opened).close();
    },
  };
}

const placeOfVolumes = ({ kubeletRoot, mountsOfPid }: Config): KubeletPlace =>
  mountsOfPid === undefined ? { kubeletRoot } : { kubeletRoot, throughPid: mountsOfPid };

/**
 * Who sets the limits of cgroups that are units of systemd by their name: systemd, unless the setting or the backend says
 * otherwise. A backend that does not say has given them these names all the same.
 */
async function cgroupDriver(config: Config, ofBackend: BackendCgroupDriver): Promise<CgroupDriverName> {
  if (config.cgroupDriver !== 'auto') return config.cgroupDriver;
  return (await ofBackend.name()) === 'CGROUPFS' ? 'cgroupfs' : 'systemd';
}

/** Whoever asks while an answer is being made gets that one: many who ask cost no more than one. */
function oneAtATime<Result>(make: () => Promise<Result>): () => Promise<Result> {
  let making: Promise<Result> | undefined;
  return () => {
    making ??= make().finally(() => (making = undefined));
    return making;
  };
}

/** Deferred requests are kept beside what else the journal has of their pods. */
const storeIn = (journal: PodJournal): ResizeStore => ({
  persist: (podUid, records) => journal.setResizes(podUid, records),
  async restore() {
    await journal.restored();
    return [...journal.resizes()].map(([podUid, records]) => ({ podUid, records }));
  },
});
