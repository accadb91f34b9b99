import type { ContainerDescription } from '../../runtime/index.ts';
import type { Bytes, CpuMax, Limit } from '../../core/quantities/index.ts';
import { exactMilliCpu, sharesToMilliCpu } from '../../kubelet/index.ts';
import { type DesiredPod, formatCpuMax, formatMemory, formatShares, invalid, memoryRequestIn } from '../model/index.ts';
import { type Limits, type PodState, storedLimits } from '../../sandbox/index.ts';

/**
 * KEP-1287: a request is at most its limit. Throws INVALID_VALUE, with the field and both figures, for a request above a limit
 * that the resize does not set. Where the resize sets both, readRequested has compared them already.
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
    throw above(`${field}.requests.cpu`, formatShares(shares), formatCpuMax(now.cpu));
}

const above = (field: string, asked: string, limit: string): Error =>
  invalid(field, asked, `the request is above the limit, ${limit}`);
