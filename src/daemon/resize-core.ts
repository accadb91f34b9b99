import { Busctl, type CgroupDriverName, DriverCgroupTree } from '../cgroups/index.ts';
import { type Config, type Counters, type Log, TimeLimit, messageOf, steadyNow, systemClock } from '../core/index.ts';
import { KubeletFiles, ManagerFiles, type PodEntry } from '../kubelet/index.ts';
import {
  type Amounts,
  Journal,
  type NodeAllocatable,
  type PodIdentity,
  PodJournal,
  type PodSpec,
  type PodSpecs,
  RecentResizes,
  Registry,
  type ResizeContext,
  type ResizeStore,
  areRequestsFreed,
  createResizeContext,
  idsInCgroup,
  noNodeAllocatable,
  noPodSpecs,
  readPodView,
  resizePod,
} from '../sandbox/index.ts';
import { Backend, BackendCgroupDriver } from '../runtime/index.ts';
import { type KubeletPlace, MemoryVolumes } from '../tmpfs/index.ts';
import { type PodResizes, createPodResizes } from './pod-resizes.ts';

/** The state and the clients that resizes need, assembled from the settings. */
export interface ResizeCore {
  readonly backend: Backend;
  readonly backendDriver: BackendCgroupDriver;
  readonly registry: Registry;
  readonly volumes: MemoryVolumes;
  /** The files of kubelet; undefined with `--foresight=false`. */
  readonly kubelet: KubeletFiles | undefined;
  readonly context: ResizeContext;
  readonly podResizes: PodResizes;
  /** The pods' specs, known once the API server is watched. */
  readonly specs: LatePodSpecs;
  /** The node's allocatable, known once the API server is watched. */
  readonly allocatable: LateAllocatable;
  /** Waits at most {@link JOURNAL_CLOSE_MS}: on a disk that hangs, the journal does not close. Never rejects. */
  closeJournal(): Promise<void>;
}

/** How long the end of the shim waits for the journal, in milliseconds. */
const JOURNAL_CLOSE_MS = 1000;

/** Returns the state and the clients that resizes need. */
export function createResizeCore(config: Config, log: Log, counters: Counters): ResizeCore {
  const backend = new Backend(`unix://${config.containerRuntimeEndpoint}`);
  const registry = new Registry(backend, log, (pod) => idsInCgroup(tree, pod));
  const volumes = new MemoryVolumes(placeOfVolumes(config));
  const opened = Journal.open(config.stateFolder, { log, counters, clock: systemClock });
  const journal = new PodJournal(opened);
  const backendDriver = new BackendCgroupDriver(backend);
  const driver = (): Promise<CgroupDriverName> => cgroupDriver(config, backendDriver);
  const tree = new DriverCgroupTree({ root: config.cgroupRoot, driver, systemd: new Busctl() });
  const { reclaimTimeout, volumesFollow } = config;
  const kubelet = kubeletFiles(config, { log, counters, onChange: kubeletChanges(() => core) });
  const specs = new LatePodSpecs();
  const allocatable = new LateAllocatable();
  const context = createResizeContext({
    registry,
    backend,
    journal,
    tree,
    volumes,
    managers: new ManagerFiles(config.kubeletRoot, { log, counters }),
    specs,
    allocatable,
    volumesFollow,
    reclaimTimeout,
    log,
    counters,
    // The page shows recent resizes. Without --metrics-bind there is no page.
    ...(config.metricsBind.kind !== 'none' && { recent: new RecentResizes() }),
    ...(kubelet && { kubelet }),
  });
  const podResizes = podResizesOf(context, { journal, log, counters });
  const closeJournal = (): Promise<void> => closeInTime(opened, config.stateFolder, log);
  const core = {
    backend,
    backendDriver,
    registry,
    volumes,
    kubelet,
    context,
    podResizes,
    specs,
    allocatable,
    closeJournal,
  };
  return core;
}

async function closeInTime(opened: Promise<Journal>, folder: string, log: Log): Promise<void> {
  const limit = new TimeLimit(steadyNow() + JOURNAL_CLOSE_MS);
  const closed = opened.then((journal) => journal.close()).then(() => true);
  try {
    if ((await limit.orOver(closed)) === undefined)
      log.warn({ folder, timeoutMs: JOURNAL_CLOSE_MS }, 'journal not closed: its disk does not answer');
  } catch (error) {
    log.warn({ folder, error: messageOf(error) }, 'journal not closed');
  } finally {
    limit.close();
  }
}

function podResizesOf(
  context: ResizeContext,
  { journal, log, counters }: { readonly journal: PodJournal; readonly log: Log; readonly counters: Counters },
): PodResizes {
  const { registry, backend, volumes, newest, history, specs, kubelet } = context;
  return createPodResizes({
    registry,
    backend,
    volumes,
    store: storeIn(journal),
    newest,
    history,
    specs,
    kubelet,
    log,
    counters,
    resizePod: (sandboxId, desired, options) => resizePod(context, sandboxId, desired, options),
    readPodView: (sandboxId, listed, signal) => readPodView(context, sandboxId, listed, signal),
  });
}

function kubeletFiles(
  { foresight, kubeletRoot }: Config,
  parts: { readonly log: Log; readonly counters: Counters; readonly onChange: () => void },
): KubeletFiles | undefined {
  return foresight ? new KubeletFiles({ kubeletRoot, clock: systemClock, ...parts }) : undefined;
}

const placeOfVolumes = ({ kubeletRoot, mountsOfPid }: Config): KubeletPlace =>
  mountsOfPid === undefined ? { kubeletRoot } : { kubeletRoot, throughPid: mountsOfPid };

/**
 * Returns the cgroup driver for cgroups that are named like systemd units: systemd, unless the setting or the backend says cgroupfs.
 * Old backends do not report their driver, but these names come from them.
 */
async function cgroupDriver(config: Config, ofBackend: BackendCgroupDriver): Promise<CgroupDriverName> {
  if (config.cgroupDriver !== 'auto') return config.cgroupDriver;
  return (await ofBackend.name()) === 'CGROUPFS' ? 'cgroupfs' : 'systemd';
}

/** Stores deferred requests in the journal records of their pods. */
const storeIn = (journal: PodJournal): ResizeStore => ({
  persist: (podUid, records) => journal.setResizes(podUid, records),
  async restore() {
    await journal.restored();
    return [...journal.resizes()].map(([podUid, records]) => ({ podUid, records }));
  },
});

/** The specs of pods, from a source that is known only once the API server is watched. Until then no spec is known. */
export class LatePodSpecs implements PodSpecs {
  #source: PodSpecs = noPodSpecs;

  use(source: PodSpecs): void {
    this.#source = source;
  }

  of(pod: PodIdentity): PodSpec | undefined {
    return this.#source.of(pod);
  }
}

/** The node's allocatable, from a source that is known only once the API server is watched. */
export class LateAllocatable implements NodeAllocatable {
  #source: NodeAllocatable = noNodeAllocatable;

  use(source: NodeAllocatable): void {
    this.#source = source;
  }

  amounts(): Amounts | undefined {
    return this.#source.amounts();
  }
}

/** Returns what to do when kubelet's checkpoints have changed. `parts` is called then. */
export function kubeletChanges(
  parts: () => {
    readonly context: Pick<ResizeContext, 'decreaseReclaimer' | 'kubelet'>;
    readonly podResizes: PodResizes;
  },
): () => void {
  let admitted: ReadonlyMap<string, PodEntry> = new Map();
  return () => {
    const { context, podResizes } = parts();
    context.decreaseReclaimer.check();
    const now = context.kubelet.allocatedPods();
    if (areRequestsFreed(admitted, now)) podResizes.resizes.roomFreed();
    admitted = now;
  };
}
