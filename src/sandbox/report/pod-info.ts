import { type Bytes, type CpuMax, Reason, ShimError } from '../../core/index.ts';
import type { VolumePolicy } from '../../tmpfs/index.ts';
import type { DecreaseReport } from '../foresight/decrease.ts';
import type { DecreaseReclaimer } from '../foresight/decrease-reclaimer.ts';
import type { PodOutcome } from '../history/outcomes.ts';
import type { Node } from '../node.ts';
import { amountTexts } from '../plan/amounts.ts';
import type { Explanation } from '../plan/failures.ts';
import { type KnownValues, type PodLimits, policyText } from '../plan/value-changes.ts';
import type { DeclaredPod } from '../pods/declared-pod.ts';
import type { Registry } from '../pods/registry.ts';
import { excessWarning, ofKubelet } from '../volumes/policies.ts';
import { type ActualValues, type PodView, readPodView } from './pod-view.ts';

/** Values by cgroup file, in the kernel's format; `cpu.shares` as in CRI. Absent: unknown. */
type Files = Readonly<
  Partial<Record<'memory.max' | 'memory.current' | 'cpu.max' | 'cpu.weight' | 'cpu.shares', string>>
>;

interface ReportedError {
  readonly reason: string;
  readonly message: string;
  readonly time?: string;
}

interface Values<Desired, Allocated, Actual> {
  readonly desired?: Desired;
  readonly allocated?: Allocated;
  readonly actuated?: Allocated;
  /** The present value in the kernel. */
  readonly actual?: Actual;
  /** The value that kubelet has admitted and not actuated. */
  readonly pending?: Allocated;
}

/** A declared container. Limits are Kubernetes quantities. */
interface DeclaredInfo {
  readonly kind: string;
  readonly state: string;
  /** Absent: not known. */
  readonly limits?: { readonly cpu?: string; readonly memory?: string };
}

/** The JSON value of the key `cri-resize-shim` in a verbose PodSandboxStatus. Documented in docs/resize.md. */
export interface PodInfo {
  /** The state of the last request since the start of the shim. */
  readonly state?: string;
  readonly lastError?: ReportedError;
  readonly annotationErrors?: readonly string[];
  readonly pod: Values<Files, Files, Files>;
  /** By name. */
  readonly containers: Readonly<Record<string, Values<Files, Files, Files> & { readonly id: string }>>;
  /** By name. Sizes are in bytes. */
  readonly volumes: Readonly<
    Record<
      string,
      Values<string, number, number> & {
        readonly used?: number;
        readonly policy?: string;
        readonly warning?: string;
        readonly lastError?: ReportedError;
      }
    >
  >;
  /** The declared pod: the source of the declaration, and the containers by name. */
  readonly declared?: {
    readonly source: string;
    readonly containers: Readonly<Record<string, DeclaredInfo>>;
  };
  /** A memory decrease that kubelet has admitted and does not apply, because usage is above the new limit. */
  readonly decrease?: {
    readonly state: string;
    readonly reason?: string;
    readonly message: string;
    readonly since: string;
    readonly reclaimedBytes: number;
  };
  /** Why the actual values are missing. */
  readonly unreadable?: Explanation;
}

/** Returns an error for each annotation and each requested size that has no effect at present. */
function ineffective({ registry, policies }: Node, sandboxId: string): readonly string[] {
  const pod = registry.knownPod(sandboxId);
  return pod === undefined ? [] : policies.ineffective(sandboxId).map((volume) => ofKubelet(pod, volume).message);
}

/**
 * Returns everything that the shim knows of a pod, the four states of KEP-1287 and KEP-6030 included. Rejects when the
 * backend is unavailable.
 */
export async function podInfo(node: Node, decreaseReclaimer: DecreaseReclaimer, sandboxId: string): Promise<PodInfo> {
  // Read before the outcome: the view adds remounts by other programs to the outcome.
  const view = await viewOf(node, decreaseReclaimer, sandboxId);
  const outcome = node.outcomes.of(sandboxId);
  const { desired, allocated, actuated, state } = outcome;
  const annotationErrors = [...outcome.annotationErrors, ...ineffective(node, sandboxId)];
  const live = 'limits' in view ? view : undefined;
  const decrease = live?.kubelet?.decrease;
  // A deferred kubelet resize is the newest request, unless another one is in progress.
  const deferred = decrease?.state === 'Deferred' && outcome.state !== 'InProgress' ? decrease : undefined;
  const shown = deferred?.state ?? state;
  const lastError = live?.lastError ?? errorOfDeferred(deferred) ?? outcome.lastError;
  return {
    ...(shown !== undefined && { state: shown }),
    ...(lastError !== undefined && { lastError: errorOf(lastError) }),
    ...(annotationErrors.length > 0 && { annotationErrors }),
    pod: {
      ...limitsOf(
        { desired: desired.pod, allocated: allocated.pod, actuated: actuated.pod },
        live?.limits,
        live?.kubelet?.values.pod,
      ),
      ...(live && { actual: actualFiles(live.limits) }),
      ...pendingFiles(live?.kubelet?.values.pod),
    },
    containers: containersOf(node.registry, sandboxId, outcome, live),
    volumes: volumesOf(outcome, live),
    ...(live?.declared && { declared: declaredOf(live.declared) }),
    ...(decrease && { decrease: decreaseOf(decrease) }),
    ...(!('limits' in view) && { unreadable: view }),
  };
}

/** Returns the view, or why the pod cannot be read, e.g. because it has no cgroup of its own. */
async function viewOf(
  node: Node,
  decreaseReclaimer: DecreaseReclaimer,
  sandboxId: string,
): Promise<PodView | Explanation> {
  try {
    return await readPodView(node, decreaseReclaimer, sandboxId);
  } catch (error) {
    if (!(error instanceof ShimError) || error.reason === Reason.UNKNOWN_POD) throw error;
    return { reason: error.reason, message: error.message };
  }
}

interface ReportedValues {
  readonly desired: KnownValues<VolumePolicy>;
  readonly allocated: KnownValues<Bytes>;
  readonly actuated: KnownValues<Bytes>;
  readonly volumeErrors: PodOutcome['volumeErrors'];
}

function containersOf(
  registry: Registry,
  sandboxId: string,
  { desired, allocated, actuated }: ReportedValues,
  live: PodView | undefined,
): PodInfo['containers'] {
  const known = registry.containersOf(sandboxId).map(({ containerId, name }) => [containerId, name] as const);
  // Running containers last: of several containers with one name, the running one overwrites the others.
  const running = live?.containers.map(({ id, name }) => [id, name] as const) ?? [];
  const actual = new Map(live?.containers.map(({ id, limits }) => [id, limits]));
  return byKey(
    [...known, ...running].map(([id, name]) => {
      const limits = actual.get(id);
      const known = {
        desired: desired.containers?.get(id),
        allocated: allocated.containers?.get(id),
        actuated: actuated.containers?.get(id),
      };
      const pending = live?.kubelet?.values.containers?.get(id);
      const own = limitsOf(known, limits, pending);
      return [name, { id, ...own, ...(limits && { actual: actualFiles(limits) }), ...pendingFiles(pending) }];
    }),
  );
}

function volumesOf(
  { desired, allocated, actuated, volumeErrors }: ReportedValues,
  live: PodView | undefined,
): PodInfo['volumes'] {
  const mounted = new Map(live?.volumes.map((volume) => [volume.name, volume]));
  const names = [desired.volumes, allocated.volumes, actuated.volumes, mounted].flatMap((map) => [
    ...(map?.keys() ?? []),
  ]);
  return byKey(
    [...new Set(names)].map((name) => {
      const requested = desired.volumes?.get(name);
      const now = mounted.get(name);
      const [admitted, written] = [allocated.volumes?.get(name), actuated.volumes?.get(name)];
      const warning =
        now && live && excessWarning(now.size, live.limits.memory, live.declared?.volumes.get(name)?.sizeLimit);
      const error = volumeErrors.get(name);
      const volume = {
        ...(requested && { desired: policyText(requested) }),
        ...(admitted !== undefined && { allocated: admitted }),
        ...(written !== undefined && { actuated: written }),
        ...(now && { actual: now.size, used: now.used, policy: policyText(now.policy) }),
        ...(warning !== undefined && { warning }),
        ...(error && { lastError: errorOf(error) }),
      };
      return [name, volume];
    }),
  );
}

/** Returns an object with sorted keys. The last of several entries with the same key wins. */
const byKey = <Value>(entries: readonly (readonly [string, Value])[]): Readonly<Record<string, Value>> =>
  Object.fromEntries(entries.toSorted(([one], [other]) => (one < other ? -1 : Number(one > other))));

interface KnownOfRequests {
  readonly desired: PodLimits | undefined;
  readonly allocated: PodLimits | undefined;
  readonly actuated: PodLimits | undefined;
}

/**
 * Returns the desired, allocated and actuated values (KEP-1287). kubelet's checkpoints win; a value that no client has
 * requested since the start of the shim is the kernel's. They therefore survive a restart of the shim.
 */
function limitsOf(
  { desired, allocated, actuated }: KnownOfRequests,
  actual: ActualValues | undefined,
  pending: PodLimits | undefined,
): Values<Files, Files, Files> {
  const now = actual && presentLimits(actual);
  const written = { ...now, ...actuated };
  const admitted = { ...written, ...allocated };
  const of = {
    desired: { ...admitted, ...desired, ...pending },
    allocated: { ...admitted, ...pending },
    actuated: written,
  };
  const there = Object.entries(of).flatMap(([name, limits]) => {
    const files = knownFiles(limits);
    return Object.keys(files).length === 0 ? [] : [[name, files] as const];
  });
  return Object.fromEntries(there);
}

const knownFiles = ({ memory, cpu, weight, shares }: PodLimits): Files => ({
  ...(memory !== undefined && { 'memory.max': String(memory) }),
  ...(cpu !== undefined && { 'cpu.max': cpuText(cpu) }),
  ...(weight !== undefined && { 'cpu.weight': String(weight) }),
  ...(shares !== undefined && { 'cpu.shares': String(shares) }),
});

const presentLimits = ({
  memory,
  cpu,
  weight,
  shares,
}: Pick<ActualValues, 'memory' | 'cpu' | 'weight' | 'shares'>): PodLimits => ({
  memory,
  cpu,
  ...(weight !== undefined && { weight }),
  ...(shares !== undefined && { shares }),
});

const actualFiles = ({ memoryUsed, ...limits }: ActualValues): Files => ({
  ...knownFiles(presentLimits(limits)),
  ...(memoryUsed !== undefined && { 'memory.current': String(memoryUsed) }),
});

const pendingFiles = (limits: PodLimits | undefined): { readonly pending?: Files } => {
  const files = limits === undefined ? {} : knownFiles(limits);
  return Object.keys(files).length === 0 ? {} : { pending: files };
};

const errorOfDeferred = (deferred: DecreaseReport | undefined): PodInfo['lastError'] =>
  deferred?.reason === undefined ? undefined : { reason: deferred.reason, message: deferred.message };

const decreaseOf = ({
  state,
  reason,
  message,
  since,
  reclaimed,
}: DecreaseReport): NonNullable<PodInfo['decrease']> => ({
  state,
  ...(reason !== undefined && { reason }),
  message,
  since: new Date(since).toISOString(),
  reclaimedBytes: reclaimed,
});

const declaredOf = ({ source, containers }: DeclaredPod): NonNullable<PodInfo['declared']> => ({
  source,
  containers: Object.fromEntries(
    containers.map(({ name, kind, state, limits }) => {
      const texts = Object.entries(limits ? amountTexts(limits) : {}).filter(([, text]) => text !== '');
      return [name, { kind, state, ...(limits && { limits: Object.fromEntries(texts) }) }];
    }),
  ),
});

const cpuText = ({ quota, period }: CpuMax): string => `${quota} ${period}`;

const errorOf = ({ reason, message, at }: { reason: string; message: string; at?: number }): ReportedError => ({
  reason,
  message,
  ...(at !== undefined && { time: new Date(at).toISOString() }),
});
