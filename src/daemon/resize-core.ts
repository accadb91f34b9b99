import { Busctl, type CgroupDriverName, DriverCgroupTree } from '../cgroups/index.ts';
import { type Config, type Counters, type Log, messageOf, systemClock, within } from '../core/index.ts';
import { KubeletFiles, type KubeletState, ManagerFiles, type PodEntry } from '../kubelet/index.ts';
import { Backend, BackendCgroupDriver } from '../runtime/index.ts';
import {
  type Amounts,
  areRequestsFreed,
  connectDecreaseReclaimer,
  createNode,
  type DecreaseReclaimer,
  idsInCgroup,
  Journal,
  type Node,
  type NodeAllocatable,
  noNodeAllocatable,
  noPodSpecs,
  type PodIdentity,
  PodJournal,
  type PodSpec,
  type PodSpecs,
  RecentResizes,
  Registry,
  type ResizeStore,
} from '../sandbox/index.ts';
import { type KubeletPlace, MemoryVolumes } from '../tmpfs/index.ts';
import { createPodResizes, type PodResizes } from './pod-resizes.ts';

/** The node and what acts on its pods, assembled from the settings. */
export interface ResizeCore {
  readonly node: Node;
  readonly decreaseReclaimer: DecreaseReclaimer;
  readonly backendDriver: BackendCgroupDriver;
  /** The files of kubelet; undefined with `--foresight=false`. */
  readonly kubelet: KubeletFiles | undefined;
  readonly podResizes: PodResizes;
  /** The node and its pods as in the API server, known once it is watched. */
  readonly apiServer: ApiServer;
  /** Waits at most {@link JOURNAL_CLOSE_MS}: on a disk that hangs, the journal does not close. Never rejects. */
  closeJournal(): Promise<void>;
}

/** Maximum time that the shutdown waits for the journal, in milliseconds. */
const JOURNAL_CLOSE_MS = 1000;

/** Creates the node and the components that act on its pods, then connects them. */
export function createResizeCore(config: Config, log: Log, counters: Counters): ResizeCore {
  const backend = new Backend(`unix://${config.containerRuntimeEndpoint}`);
  const backendDriver = new BackendCgroupDriver(backend);
  const driver = (): Promise<CgroupDriverName> => cgroupDriver(config, backendDriver);
  const tree = new DriverCgroupTree({ root: config.cgroupRoot, driver, systemd: new Busctl() });
  const opened = Journal.open(config.stateFolder, { log, counters, clock: systemClock });
  const journal = new PodJournal(opened);
  const { foresight, kubeletRoot, reclaimTimeout, volumesFollow } = config;
  const kubelet = foresight ? new KubeletFiles({ kubeletRoot, clock: systemClock, log, counters }) : undefined;
  const apiServer = new ApiServer();
  const node = createNode({
    registry: new Registry(backend, log, (pod) => idsInCgroup(tree, pod)),
    backend,
    journal,
    tree,
    volumes: new MemoryVolumes(placeOfVolumes(config)),
    managers: new ManagerFiles(kubeletRoot, { log, counters }),
    specs: apiServer,
    allocatable: apiServer,
    volumesFollow,
    reclaimTimeout,
    log,
    counters,
    // The page shows recent resizes. Without --metrics-bind there is no page.
    ...(config.metricsBind.kind !== 'none' && { recent: new RecentResizes() }),
    ...(kubelet && { kubelet }),
  });
  const decreaseReclaimer = connectDecreaseReclaimer(node);
  const podResizes = createPodResizes(node, decreaseReclaimer, storeIn(journal));
  kubelet?.onChange(kubeletChanges(kubelet, decreaseReclaimer, podResizes.resizes));
  const closeJournal = (): Promise<void> => closeInTime(opened, config.stateFolder, log);
  return { node, decreaseReclaimer, backendDriver, kubelet, podResizes, apiServer, closeJournal };
}

async function closeInTime(opened: Promise<Journal>, folder: string, log: Log): Promise<void> {
  const closed = opened.then((journal) => journal.close()).then(() => true);
  try {
    if ((await within(JOURNAL_CLOSE_MS, closed)) === undefined)
      log.warn({ folder, timeoutMs: JOURNAL_CLOSE_MS }, 'journal not closed: its disk does not answer');
  } catch (error) {
    log.warn({ folder, error: messageOf(error) }, 'journal not closed');
  }
}

const placeOfVolumes = ({ kubeletRoot, mountsOfPid }: Config): KubeletPlace =>
  mountsOfPid === undefined ? { kubeletRoot } : { kubeletRoot, throughPid: mountsOfPid };

/**
 * Returns the cgroup driver for cgroups that are named like systemd units: systemd, unless the setting or the backend
 * says cgroupfs. Old backends do not report their driver, but these names come from them.
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

/** The node and its pods from the API server. Unknown until they are watched. */
export class ApiServer implements PodSpecs, NodeAllocatable {
  #specs: PodSpecs = noPodSpecs;
  #allocatable: NodeAllocatable = noNodeAllocatable;

  /** Uses the data of a watch from now on. */
  watched({ specs, allocatable }: { readonly specs: PodSpecs; readonly allocatable: NodeAllocatable }): void {
    this.#specs = specs;
    this.#allocatable = allocatable;
  }

  of(pod: PodIdentity): PodSpec | undefined {
    return this.#specs.of(pod);
  }

  amounts(): Amounts | undefined {
    return this.#allocatable.amounts();
  }
}

/** Returns what to do when kubelet's checkpoints have changed. */
export function kubeletChanges(
  kubelet: Pick<KubeletState, 'allocatedPods'>,
  decreaseReclaimer: Pick<DecreaseReclaimer, 'check'>,
  resizes: Pick<PodResizes['resizes'], 'roomFreed'>,
): () => void {
  let admitted: ReadonlyMap<string, PodEntry> = new Map();
  return () => {
    decreaseReclaimer.check();
    const now = kubelet.allocatedPods();
    if (areRequestsFreed(admitted, now)) resizes.roomFreed();
    admitted = now;
  };
}
