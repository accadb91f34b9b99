import { type Bytes, bytes, type Limit, microseconds } from '../../src/core/quantities/numbers.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';
import type { RecentResize } from '../../src/sandbox/history/recent-resizes.ts';
import type { Step } from '../../src/sandbox/plan/step.ts';
import type { Overview, PodSummary } from '../../src/sandbox/report/overview.ts';
import type { ActualValues } from '../../src/sandbox/report/pod-view.ts';

/** A fake node: pods of every kind that the page distinguishes, and resizes with every outcome. */

const mi = (amount: number): Bytes => bytes(Math.round(amount * MiB));
const noCpu = { quota: 'max' as const, period: microseconds(100_000) };

const limitsOf = (memory: number | 'max', used: number, milli: number | 'max' = 'max'): ActualValues => ({
  memory: memory === 'max' ? 'max' : mi(memory),
  memoryUsed: mi(used),
  cpu: milli === 'max' ? noCpu : { quota: microseconds(milli * 100), period: microseconds(100_000) },
  weight: undefined,
});

/** The longest names that Kubernetes allows. */
const longName = 'a-very-long-name-of-a-deployment-that-nobody-has-cut-down-5d9c7b8f6c-x2x9q'.padEnd(253, '-and-more');
const longVolume = 'v'.repeat(63);

const identity = (namespace: string, name: string, sandboxId: string) => ({ namespace, name, sandboxId, uid: name });
const ids = ['3f1c9a77d20be4', '81b0c2fe6a913d', 'c07de41b5592fa', '0e5f7ac8d31b62', 'f9217be04cc8aa'];

interface Parts {
  readonly limits: ActualValues;
  readonly containers: readonly (readonly [name: string, limits: ActualValues])[];
  readonly volumes?: readonly (readonly [name: string, size: number, used: number])[];
  readonly lastError?: { readonly reason: string; readonly message: string };
}

const podOf = (pod: PodSummary['pod'], { limits, containers, volumes = [], lastError }: Parts): PodSummary => ({
  pod,
  view: {
    limits,
    containers: containers.map(([name, of], index) => ({ id: `${pod.sandboxId}${index}`, name, limits: of })),
    volumes: volumes.map(([name, size, used]) => ({
      ...{ name, size: mi(size), used: mi(used) },
      policy: { kind: 'fixed' as const },
    })),
    outcome: { desired: {}, allocated: {}, actuated: {}, volumeErrors: new Map() },
    lastError,
  },
  history: [],
});

const pods: readonly PodSummary[] = [
  podOf(identity('default', 'web', ids[0]!), {
    limits: limitsOf(1024, 512, 1500),
    containers: [
      ['app', limitsOf(768, 384, 1000)],
      ['sidecar', limitsOf(256, 128, 500)],
    ],
    volumes: [['cache', 512, 128]],
  }),
  podOf(identity('batch', 'full', ids[1]!), {
    limits: limitsOf(256, 251),
    containers: [['worker', limitsOf(256, 250)]],
    volumes: [['scratch', 64, 64]],
  }),
  podOf(identity('kube-system', 'no-limits', ids[2]!), {
    limits: limitsOf('max', 37.5),
    containers: [['agent', limitsOf('max', 36)]],
  }),
  podOf(identity('a-namespace-that-is-as-long-as-namespaces-can-be-which-is-63-chars', longName, ids[3]!), {
    limits: limitsOf(64 * 1024, 12_345.6, 64_000),
    containers: [
      ['a-container-whose-name-is-as-long-as-kubernetes-lets-it-be-63-c', limitsOf(64 * 1024, 12_000, 64_000)],
    ],
    volumes: [[longVolume, 32 * 1024, 9]],
    lastError: {
      reason: 'UNDO_FAILED',
      message:
        '/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod3f1c9a77_d20b_e4.slice/memory.max: 268435456: EBUSY',
    },
  }),
  {
    pod: identity('default', 'ending', ids[4]!),
    view: { reason: 'CGROUP_UNAVAILABLE', message: '/sys/fs/cgroup/kubepods/podending/memory.max: ENOENT' },
    history: [],
  },
];

interface Way {
  readonly name: string;
  readonly outcome: RecentResize['outcome'];
  readonly message?: string;
  readonly memory: number | 'max';
  readonly containers: readonly (readonly [id: string, memory: number | 'max'])[];
  readonly volumes?: readonly (readonly [name: string, size: number])[];
  readonly steps: readonly (readonly [step: Step, used: number | undefined])[];
}

const limit = (amount: number | 'max'): Limit<Bytes> => (amount === 'max' ? 'max' : mi(amount));
const podStep = (from: number, to: number): Step => ({ kind: 'pod-memory', from: mi(from), to: mi(to) });
const containerStep = (id: string, from: number | 'max', to: number): Step => ({
  ...{ kind: 'container', id },
  memory: { from: limit(from), to: limit(to) },
});
const volumeStep = (volume: string, from: number, to: number): Step => ({
  ...{ kind: 'volume', volume },
  ...{ from: mi(from), to: mi(to) },
});

const STEP_MS = 12.5;

const resizeOf = ({ name, outcome, message, memory, containers, volumes = [], steps }: Way): RecentResize => ({
  ...{ namespace: 'default', name, sandboxId: ids[0]!, outcome, message },
  ...{ at: Date.UTC(2026, 0, 2, 3, 4, 5), ms: STEP_MS * (steps.length + 1) },
  before: {
    ...{ memory: limit(memory), cpu: noCpu, weight: undefined, overhead: { memory: bytes(0), cpu: noCpu } },
    containers: containers.map(([id, of]) => ({ id, memory: limit(of), cpu: noCpu })),
    volumes: volumes.map(([volume, size]) => ({ name: volume, size: mi(size) })),
  },
  usedBefore: mi(180),
  steps: steps.map(([step, used], index) => ({
    ...{ step, doneAt: STEP_MS * (index + 1), ms: STEP_MS },
    used: used === undefined ? undefined : mi(used),
  })),
  names: new Map(containers.map(([id]) => [id, id])),
});

const recent: readonly RecentResize[] = [
  resizeOf({
    ...{ name: 'grown', outcome: 'done', memory: 512, volumes: [['cache', 256]] },
    containers: [
      ['app', 384],
      ['sidecar', 128],
    ],
    steps: [
      [podStep(512, 1024), 180],
      [containerStep('app', 384, 768), 190],
      [containerStep('sidecar', 128, 256), 200],
      [volumeStep('cache', 256, 512), undefined],
    ],
  }),
  resizeOf({
    ...{ name: 'lowered', outcome: 'done', memory: 1024, containers: [['app', 1024]], volumes: [['cache', 1024]] },
    steps: [
      [volumeStep('cache', 1024, 256), 180],
      [containerStep('app', 1024, 256), 100],
      [podStep(1024, 256), 90],
    ],
  }),
  resizeOf({
    ...{ name: 'undone', outcome: 'undone', message: 'task update failed: EBUSY', memory: 256 },
    containers: [['app', 'max']],
    steps: [[podStep(256, 512), 180]],
  }),
  resizeOf({
    ...{ name: longName, outcome: 'undo failed', message: `${longVolume}: EBUSY`, memory: 256 },
    ...{ containers: [['app', 256]], volumes: [[longVolume, 256]] },
    steps: [
      [volumeStep(longVolume, 256, 128), 60],
      [containerStep('app', 256, 128), 50],
    ],
  }),
];

/** As the history has them: one that was applied, one that kubelet repeats. */
const history: Overview['history'] = [
  {
    ...{ id: 'f00', pod: { sandboxId: ids[0]!, uid: 'u', namespace: 'default', name: 'lowered' }, state: 'Deferred' },
    requester: { kind: 'kubelet', process: { pid: 812, name: 'kubelet' } },
    ...{ reason: 'MEMORY_NOT_RECLAIMABLE', message: '300Mi are in use that cannot be reclaimed', isRolledBack: false },
    changes: [{ value: 'container app memory', from: '1Gi', to: '256Mi' }],
    ...{ createdAt: Date.UTC(2026, 0, 2, 3, 4, 5), changedAt: Date.UTC(2026, 0, 2, 3, 4, 5), count: 3 },
  },
  {
    ...{ id: 'f01', pod: { sandboxId: ids[0]!, uid: 'u', namespace: 'default', name: 'grown' }, state: 'Completed' },
    requester: { kind: 'cri-client', process: { pid: 4711, name: 'crictl' } },
    ...{ reason: undefined, message: undefined, isRolledBack: false },
    changes: [
      { value: 'pod memory', from: '512Mi', to: '1Gi' },
      { value: 'container app memory', from: '384Mi', to: '768Mi' },
    ],
    ...{ createdAt: Date.UTC(2026, 0, 2, 3, 4, 4), changedAt: Date.UTC(2026, 0, 2, 3, 4, 4), count: 1 },
  },
];

export const fakeOverview: Overview = { pods, recent, history };

const names = ['web', 'db', 'queue', 'worker', 'search', 'mail', 'report', 'import', 'auth', 'images'];

/** A pod that uses this percentage of its memory limit. */
function loadedPod(index: number, percent: number): PodSummary {
  const limit = 128 * (1 + (index % 4));
  const name = `${names[index % names.length]}-${index}`;
  const used = (limit * percent) / 100;
  const stalled = percent > 80 ? (percent - 80) / 2 : 0;
  const load = {
    ...{ unreclaimable: mi(used), cpuTime: microseconds(index), memoryStalled: stalled, cpuStalled: index % 7 },
  };
  const limits = { ...limitsOf(limit, Math.min(limit, used + 10), 250 * (1 + (index % 3))), load };
  return podOf(identity(index % 5 === 0 ? 'batch' : 'default', name, String(index).padStart(14, '0')), {
    limits,
    containers: [['app', limits]],
    volumes: index % 3 === 0 ? [['cache', 64, 64 * (percent / 100)]] : [],
  });
}

/** 250 pods, each with another pressure, in no order. */
export const fullNode: Overview = {
  pods: Array.from({ length: 250 }, (_, index) => loadedPod(index, ((index * 37) % 250) * 0.396)),
  recent,
  history,
};

/** Pods and resizes that most nodes have: short names, one refusal. */
export const typicalOverview: Overview = {
  pods: [97, 12, 64, 33, 8, 51, 71, 22].map((percent, index) => loadedPod(index + 1, percent)),
  recent: recent.slice(0, 2),
  history,
};
