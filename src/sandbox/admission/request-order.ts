import { weightMatchesShares } from '../../cgroups/index.ts';
import { type Bytes, bytes, type CpuMax, type Limit, reportedShares } from '../../core/index.ts';
import { exactMilliCpu, type MilliCpu, milliCpuToShares, sharesToMilliCpu } from '../../kubelet/index.ts';
import type { ContainerDescription, PodDescription } from '../../runtime/index.ts';
import {
  compareCpu,
  compareLimits,
  formatCpuLimit,
  formatMemory,
  formatMilli,
  formatShares,
  invalid,
} from '../plan/amounts.ts';
import { type DesiredPod, memoryRequestIn } from '../plan/resize-request.ts';
import type { Amounts } from '../pods/declared-pod.ts';
import type { Limits, PodState } from '../pods/pod-state.ts';
import { storedLimits } from '../pods/stored-limits.ts';
import { hasSharesOfPod } from './pod-level.ts';
import { amountsNow, overheadRequests, pick, requestOfShares } from './pod-requests.ts';

/**
 * KEP-1287: a request is at most its limit. Throws INVALID_VALUE, with the field and both figures, for a request above
 * a limit that the resize does not set. If the resize sets both, readRequested has already compared them.
 *
 * @param after the pod after the resize: its own limit may be derived from its containers' limits
 */
export function assertRequestsFit(
  { pod, containers, memoryRequests }: DesiredPod,
  after: PodState,
  described: ReadonlyMap<string, ContainerDescription>,
): void {
  assertFits('resources', pod, memoryRequests?.pod, after);
  for (const [name, desired] of containers) {
    const container = described.get(name);
    const running = after.containers.find(({ id }) => id === container?.containerId);
    const limits = running ?? storedLimits(container?.resources);
    const memory = memoryRequestIn(memoryRequests, name);
    if (limits !== undefined) assertFits(`containers[${JSON.stringify(name)}]`, desired, memory, limits);
  }
}

function assertFits(
  field: string,
  desired: Limits,
  memory: Bytes | undefined,
  now: { readonly memory: Limit<Bytes>; readonly cpu: CpuMax },
): void {
  if (desired.memory === undefined && memory !== undefined && now.memory !== 'max' && memory > now.memory)
    throw above(`${field}.requests.memory`, formatMemory(memory), formatMemory(now.memory));
  const { shares } = desired;
  const { quota, period } = now.cpu;
  if (desired.cpu !== undefined || shares === undefined || quota === 'max') return;
  if (sharesToMilliCpu(shares) > exactMilliCpu(quota, period))
    throw above(`${field}.requests.cpu`, formatShares(shares), formatCpuLimit(now.cpu));
}

/**
 * KEP-1287: a request is at most its limit. Throws INVALID_VALUE, with the field and both figures, if a limit is
 * lowered below the present request. The request comes from an earlier resize, kubelet's state, the spec, or the shares
 * that the runtime stores. Shares that {@link hasSharesOfPod kubelet has derived from the pod's limit} are not a
 * request. A limit that is not lowered is not compared, because another program may have set both. If the resize sets
 * both, readRequested has already compared them.
 *
 * @param state the pod before the resize
 */
export function assertLimitsFit(
  pod: Pick<PodDescription, 'cpuShares'>,
  state: PodState,
  desired: DesiredPod,
  described: ReadonlyMap<string, ContainerDescription>,
): void {
  const { declared } = state;
  assertNotBelow('resources', desired.pod, desired.memoryRequests?.pod, {
    limits: state,
    requests: requestsOfPod(pod, state, desired),
  });
  const now = amountsNow(state, desired);
  for (const [name, wanted] of desired.containers) {
    const container = described.get(name);
    const running = state.containers.find(({ id }) => id === container?.containerId);
    const { memory, milliCpu } = now.find((one) => one.name === name)?.requests ?? {};
    const stored = reportedShares(container?.resources?.cpu_shares ?? 0n);
    const ofShares = hasSharesOfPod(declared, name) ? undefined : (milliCpu ?? requestOfShares(stored, undefined));
    assertNotBelow(`containers[${JSON.stringify(name)}]`, wanted, memoryRequestIn(desired.memoryRequests, name), {
      limits: running ?? storedLimits(container?.resources),
      requests: pick(memory, ofShares),
    });
  }
}

/**
 * Returns the present requests of a pod with pod-level requests. Includes the overhead, like the pod's cgroup. A memory
 * request of an earlier resize takes precedence over the declared one.
 */
function requestsOfPod(
  pod: Pick<PodDescription, 'cpuShares'>,
  state: PodState,
  { earlierMemoryRequests }: DesiredPod,
): Amounts {
  const { memory, milliCpu } = state.declared?.requests ?? {};
  const more = overheadRequests(state.overhead);
  const declaredMemory = memory === undefined ? undefined : bytes(memory + more.memory);
  return pick(
    earlierMemoryRequests?.pod ?? declaredMemory,
    milliCpu === undefined ? undefined : cpuRequestOfPod(pod, state, milliCpu + more.milliCpu),
  );
}

/**
 * Returns the known CPU request that matches the pod's weight: the request from its shares, as set at its creation or
 * by the last resize, or the declared request. Returns the lower one if both match, and undefined if neither matches:
 * the request is unknown then.
 */
function cpuRequestOfPod(
  { cpuShares: stored }: Pick<PodDescription, 'cpuShares'>,
  { weight }: PodState,
  declared: MilliCpu,
): MilliCpu | undefined {
  if (weight === undefined) return declared;
  const known = stored === undefined ? [declared] : [sharesToMilliCpu(stored), declared];
  const found = known.filter((request) => weightMatchesShares(weight, milliCpuToShares(request)));
  return found.length === 0 ? undefined : Math.min(...found);
}

/** The values before a resize. */
interface Present {
  /** Undefined: not known. */
  readonly limits: { readonly memory: Limit<Bytes>; readonly cpu: CpuMax } | undefined;
  readonly requests: Amounts;
}

function assertNotBelow(
  field: string,
  { memory, cpu, shares }: Limits,
  memoryRequest: Bytes | undefined,
  { limits, requests }: Present,
): void {
  const isLowered = memory !== undefined && (limits === undefined || compareLimits(memory, limits.memory) < 0);
  if (isLowered && memory !== 'max' && memoryRequest === undefined && memory < (requests.memory ?? 0))
    throw below(`${field}.limits.memory`, formatMemory(memory), formatMemory(requests.memory ?? 'max'));
  if (cpu === undefined || cpu.quota === 'max' || shares !== undefined) return;
  if (limits !== undefined && compareCpu(cpu, limits.cpu) >= 0) return;
  const { milliCpu = 0 } = requests;
  if (exactMilliCpu(cpu.quota, cpu.period) < milliCpu)
    throw below(`${field}.limits.cpu`, formatCpuLimit(cpu), formatMilli(milliCpu));
}

const below = (field: string, asked: string, request: string): Error =>
  invalid(field, asked, `the limit is below the request, ${request}`);

const above = (field: string, asked: string, limit: string): Error =>
  invalid(field, asked, `the request is above the limit, ${limit}`);
