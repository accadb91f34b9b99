import type { Bytes } from '../../core/index.ts';
import {
  type ActualValues,
  amountTexts,
  type DeclaredPod,
  type DryRun,
  describeStep,
  excessWarning,
  formatCpuLimit,
  formatMemory,
  formatShares,
  type HistoryEntry,
  type KnownValues,
  type MemoryRequests,
  type PendingKubeletResize,
  type PodDirectory,
  type PodIdentity,
  type PodLimits,
  type PodState,
  type PodView,
  policyText,
  type Requester,
  type Resize,
  type ResizeEvent,
  type ResizeState,
  type StepRecord,
} from '../../sandbox/index.ts';
import type { Messages, Span, State } from './messages.ts';

/** Conversions from the shim's types to the wire format. */

const states: Readonly<Record<ResizeState, State>> = {
  Proposed: 'PROPOSED',
  InProgress: 'IN_PROGRESS',
  Deferred: 'DEFERRED',
  Infeasible: 'INFEASIBLE',
  Completed: 'COMPLETED',
  Canceled: 'CANCELED',
};

/** Returns a container's name by its id. */
export type NameOf = PodDirectory['containerName'];

/** Returns a resize as a message of the resize API. */
export function resizeReport(resize: Resize, nameOf: NameOf): Messages['Resize'] {
  const {
    id,
    pod,
    state,
    reason = '',
    message = '',
    steps,
    before,
    after,
    memoryRequests,
    createdAt,
    changedAt,
    tries,
    nextTryAt,
    requester,
    changes,
  } = resize;
  const name = (containerId: string): string => nameOf(pod.sandboxId, containerId);
  return {
    id,
    pod: identityReport(pod),
    state: states[state],
    reason,
    message,
    tries,
    steps: steps.map((record) => stepReport(record, name)),
    created: spanOf(createdAt),
    changed: spanOf(changedAt),
    ...(before === undefined ? {} : { before: stateReport(before, memoryRequests?.before, name) }),
    ...(after === undefined ? {} : { after: stateReport(after, memoryRequests?.after, name) }),
    ...(nextTryAt === undefined ? {} : { next_try: spanOf(nextTryAt) }),
    requester: requesterReport(requester),
    changes: [...changes],
    rolled_back: resize.isRolledBack,
  };
}

/** Reports a dry run: it has no id, and its state is PROPOSED, or DEFERRED if the resize would be. */
export function dryRunReport(pod: PodIdentity, result: DryRun, now: number, nameOf: NameOf): Messages['Resize'] {
  const times = { created: spanOf(now), changed: spanOf(now) };
  const about = { id: '', pod: identityReport(pod), tries: 0, ...times };
  if ('deferred' in result) return { ...about, state: 'DEFERRED', ...result.deferred, steps: [] };
  const { steps, before, after, memoryRequests } = result;
  const name = (containerId: string): string => nameOf(pod.sandboxId, containerId);
  return {
    ...about,
    state: 'PROPOSED',
    reason: '',
    message: '',
    steps: steps.map((record) => stepReport(record, name)),
    before: stateReport(before, memoryRequests.before, name),
    after: stateReport(after, memoryRequests.after, name),
  };
}

/** Returns an event of a resize as a message of the resize API. */
export function eventReport(event: ResizeEvent, nameOf: NameOf): Messages['ResizeEvent'] {
  const { resize, pod, requester, at, what } = event;
  const about = {
    resize_id: resize,
    pod: identityReport(pod),
    time: spanOf(at),
    requester: requesterReport(requester),
  };
  if (what.kind === 'step') {
    return { ...about, step: stepReport(what.record, (id) => nameOf(pod.sandboxId, id)) };
  }
  const { state, reason = '', message = '', changes, isRolledBack, count } = what;
  const change = { state: states[state], reason, message, changes: [...changes], rolled_back: isRolledBack, count };
  return { ...about, state: change };
}

export interface PodReportOptions {
  readonly pod: PodIdentity;
  /** The pod's values, or why they cannot be read. */
  readonly view: PodView | { readonly reason: string; readonly message: string };
  /** The last resizes, the newest first. */
  readonly history: readonly HistoryEntry[];
  readonly memory: MemoryRequests;
  readonly nameOf: NameOf;
}

/** Returns a pod as a message of the resize API. */
export function podReport({ pod, view, history, memory, nameOf }: PodReportOptions): Messages['Pod'] {
  const summaries = history.map(summaryOf);
  const [newest] = summaries;
  const last = { ...(newest && { last_resize: newest }), history: summaries };
  if (!('limits' in view)) return { identity: identityReport(pod), ...last, unreadable: view };
  const { limits, containers, volumes, lastError, outcome, kubelet, declared } = view;
  const name = (containerId: string): string => nameOf(pod.sandboxId, containerId);
  const values: Messages['PodValues'] = {
    pod: valuesOf(limits, memory.pod),
    containers: containers.map(({ id, name, limits: own }) => ({
      id,
      name,
      values: valuesOf(own, memory.containers[name]),
    })),
    volumes: volumes.map((volume) => volumeReport(volume, view)),
  };
  const error = lastError === undefined ? {} : { last_error: { ...lastError } };
  return {
    identity: identityReport(pod),
    values,
    ...last,
    ...error,
    desired: knownReport(outcome.desired, name, (policy) => ({ size_bytes: 0, policy: policyText(policy) })),
    allocated: knownReport(outcome.allocated, name, sizeReport),
    actuated: knownReport(outcome.actuated, name, sizeReport),
    ...(kubelet && { kubelet: kubeletReport(kubelet, name) }),
    ...(declared && { declared: declaredReport(declared) }),
  };
}

function declaredReport({ source, containers }: DeclaredPod): NonNullable<Messages['Pod']['declared']> {
  return {
    source,
    containers: containers.map(({ name, kind, state, limits = {} }) => ({
      name,
      kind,
      state,
      limits: amountTexts(limits),
    })),
  };
}

function volumeReport(
  { name, size, used, policy }: PodView['volumes'][number],
  { limits, outcome, declared }: PodView,
): Messages['PodValues']['volumes'][number] {
  const warning = excessWarning(size, limits.memory, declared?.volumes.get(name)?.sizeLimit);
  const error = outcome.volumeErrors.get(name);
  return {
    name,
    size_bytes: size,
    used_bytes: used,
    policy: policyText(policy),
    ...(warning !== undefined && { warning }),
    ...(error !== undefined && { last_error: { reason: error.reason, message: error.message } }),
  };
}

function kubeletReport(
  { values, decrease }: PendingKubeletResize,
  nameOf: (containerId: string) => string,
): NonNullable<Messages['Pod']['kubelet']> {
  const report = { values: knownReport(values, nameOf, sizeReport) };
  if (decrease === undefined)
    return { ...report, state: 'STATE_UNSPECIFIED', reason: '', message: '', reclaimed_bytes: 0 };
  const { state, reason = '', message, since, reclaimed } = decrease;
  return { ...report, state: states[state], reason, message, since: spanOf(since), reclaimed_bytes: reclaimed };
}

/** Reports values. Unknown ones are empty or 0. */
function knownReport<Size>(
  { pod = {}, containers = new Map(), volumes = new Map() }: KnownValues<Size>,
  nameOf: (containerId: string) => string,
  volume: (size: Size) => Pick<Messages['PodValues']['volumes'][number], 'size_bytes' | 'policy'>,
): Messages['PodValues'] {
  return {
    pod: knownLimits(pod),
    containers: [...containers]
      .map(([id, limits]) => ({ id, name: nameOf(id), values: knownLimits(limits) }))
      .toSorted(byName),
    volumes: [...volumes].map(([name, size]) => ({ name, used_bytes: 0, ...volume(size) })).toSorted(byName),
  };
}

const sizeReport = (size: Bytes) => ({ size_bytes: size, policy: '' });

function knownLimits({ memory, cpu, weight, shares, memoryRequest }: PodLimits): Messages['Values'] {
  return {
    limits: {
      cpu: cpu === undefined ? '' : formatCpuLimit(cpu),
      memory: memory === undefined ? '' : formatMemory(memory),
    },
    requests: {
      cpu: shares === undefined ? '' : formatShares(shares),
      memory: memoryRequest === undefined ? '' : formatMemory(memoryRequest),
    },
    cpu_max: cpu === undefined ? '' : `${cpu.quota} ${cpu.period}`,
    memory_max: memory === undefined ? '' : String(memory),
    cpu_shares: shares ?? 0,
    cpu_weight: weight ?? 0,
    memory_used_bytes: 0,
  };
}

const summaryOf = (entry: HistoryEntry): Messages['ResizeSummary'] => {
  const { id, state, reason = '', message = '', requester, changes, isRolledBack, createdAt, changedAt, count } = entry;
  return {
    id,
    state: states[state],
    reason,
    message,
    requester: requesterReport(requester),
    changes: [...changes],
    rolled_back: isRolledBack,
    created: spanOf(createdAt),
    changed: spanOf(changedAt),
    count,
  };
};

const kinds = {
  kubelet: 'KUBELET',
  'cri-client': 'CRI_CLIENT',
  api: 'API',
  annotation: 'ANNOTATION',
  shim: 'SHIM',
  spec: 'SPEC',
} as const satisfies Readonly<Record<Requester['kind'], string>>;

const requesterReport = ({ kind, process }: Requester): Messages['Requester'] => ({
  kind: kinds[kind],
  process: process?.name ?? '',
  pid: process?.pid ?? 0,
});

function stateReport(state: PodState, memory = noRequests, nameOf: (id: string) => string): Messages['PodValues'] {
  const unknown = { memoryUsed: undefined, weight: undefined };
  return {
    pod: valuesOf({ ...unknown, memory: state.memory, cpu: state.cpu, weight: state.weight }, memory.pod),
    containers: state.containers
      .map(({ id, memory: limit, cpu, shares }) => {
        const name = nameOf(id);
        const own = { ...unknown, memory: limit, cpu, ...(shares && { shares }) };
        return { id, name, values: valuesOf(own, memory.containers[name]) };
      })
      .toSorted(byName),
    volumes: state.volumes
      .map(({ name, size }) => ({ name, size_bytes: size, used_bytes: 0, policy: '' }))
      .toSorted(byName),
  };
}

const byName = (one: { readonly name: string }, other: { readonly name: string }): number =>
  one.name < other.name ? -1 : Number(one.name > other.name);

function valuesOf(
  { memory, memoryUsed, cpu, shares, weight, load }: ActualValues,
  memoryRequest: Bytes | undefined,
): Messages['Values'] {
  return {
    limits: { cpu: formatCpuLimit(cpu), memory: formatMemory(memory) },
    requests: {
      cpu: shares === undefined ? '' : formatShares(shares),
      memory: memoryRequest === undefined ? '' : formatMemory(memoryRequest),
    },
    cpu_max: `${cpu.quota} ${cpu.period}`,
    memory_max: String(memory),
    cpu_shares: shares ?? 0,
    cpu_weight: weight ?? 0,
    memory_used_bytes: memoryUsed ?? 0,
    ...(load && loadReport(load)),
  };
}

/** Fields that the kernel does not report are absent. */
const loadReport = ({
  unreclaimable,
  cpuTime,
  memoryStalled,
  cpuStalled,
}: NonNullable<ActualValues['load']>): Partial<Messages['Values']> => ({
  ...(unreclaimable !== undefined && { memory_unreclaimable_bytes: unreclaimable }),
  ...(cpuTime !== undefined && { cpu_time: spanOf(cpuTime / 1000) }),
  ...(memoryStalled !== undefined && { memory_stalled_percent: memoryStalled }),
  ...(cpuStalled !== undefined && { cpu_stalled_percent: cpuStalled }),
});

function stepReport({ step, at, ms }: StepRecord, nameOf: (id: string) => string): Messages['Step'] {
  return {
    kind: step.kind.replace('-', '_').toUpperCase() as Messages['Step']['kind'],
    target: step.kind === 'volume' ? step.volume : step.kind === 'container' ? nameOf(step.id) : '',
    text: describeStep(step),
    at: spanOf(at),
    took: spanOf(ms),
  };
}

function identityReport({ sandboxId, uid, namespace, name }: PodIdentity): Messages['PodIdentity'] {
  return { sandbox_id: sandboxId, uid, namespace, name };
}

/** Converts milliseconds to a Duration, or milliseconds since the epoch to a Timestamp. */
function spanOf(ms: number): Span {
  const micros = Math.round(ms * 1000);
  return { seconds: Math.floor(micros / 1e6), nanos: (micros % 1e6) * 1000 };
}

const noRequests: MemoryRequests = { containers: {} };
