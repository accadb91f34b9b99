import { type Bytes, type Limit, ShimError } from '../../core/index.ts';
import { type MilliCpu, milliCpuToShares } from '../../kubelet/index.ts';
import { isDnsLabel, parseVolumeAnnotation, VOLUME_ANNOTATION, type VolumePolicy } from '../../tmpfs/index.ts';
import {
  cpuMaxOf,
  formatMemory,
  formatMilli,
  invalid,
  readCpuLimit,
  readCpuRequest,
  readMemoryLimit,
  readMemoryRequest,
} from '../plan/amounts.ts';
import { type DesiredPod, type MemoryRequests, memoryRequestIn } from '../plan/resize-request.ts';
import type { Limits } from '../pods/pod-state.ts';

/** The requested resize of a whole pod, as strings from the caller. Plain JSON, so that it can be stored. */
export interface RequestedPod {
  readonly pod: RequestedResources;
  /** By container name. */
  readonly containers: Readonly<Record<string, RequestedResources>>;
  /** By volume name, in the syntax of the volume annotation. */
  readonly volumes: Readonly<Record<string, string>>;
}

/** `''` leaves a value unchanged; `-1` and `max` remove a limit. */
export interface RequestedResources {
  readonly limits: RequestedAmounts;
  readonly requests: RequestedAmounts;
}

export interface RequestedAmounts {
  readonly cpu: string;
  readonly memory: string;
}

export const noMemoryRequests: MemoryRequests = { containers: {} };

export interface ReadRequest {
  readonly desired: DesiredPod;
  /** The memory requests that the request sets. */
  readonly memoryRequests: MemoryRequests;
}

/**
 * Validates and parses a request. Throws INVALID_VALUE or INVALID_ANNOTATION with the path of the field and its value.
 * @param before the memory requests that earlier resizes have set: no memory limit may be below them
 */
export function readRequested(asked: RequestedPod, before: MemoryRequests = noMemoryRequests): ReadRequest {
  const pod = readResources(asked.pod, 'resources', before.pod);
  const memory = new Map<string, Bytes>();
  const containers = new Map<string, Limits>();
  for (const [name, resources] of Object.entries(asked.containers)) {
    const field = `containers[${quoted(name)}]`;
    if (!isDnsLabel(name)) throw invalid(field, name, 'not the name of a container');
    const read = readResources(resources, field, memoryRequestIn(before, name));
    if (read.memoryRequest !== undefined) memory.set(name, read.memoryRequest);
    containers.set(name, read.limits);
  }
  const volumes = new Map(Object.entries(asked.volumes).map(([name, text]) => [name, readVolume(name, text)] as const));
  assertNotEmpty(asked);
  const memoryRequests = {
    containers: Object.fromEntries(memory),
    ...(pod.memoryRequest === undefined ? {} : { pod: pod.memoryRequest }),
  };
  const earlier = before === noMemoryRequests ? {} : { earlierMemoryRequests: before };
  return { desired: { pod: pod.limits, containers, volumes, memoryRequests, ...earlier }, memoryRequests };
}

function readResources(
  { limits, requests }: RequestedResources,
  field: string,
  memoryBefore: Bytes | undefined,
): { readonly limits: Limits; readonly memoryRequest: Bytes | undefined } {
  const cpu = readCpuLimit(limits.cpu, `${field}.limits.cpu`);
  const memory = readMemoryLimit(limits.memory, `${field}.limits.memory`);
  const cpuRequest = readCpuRequest(requests.cpu, `${field}.requests.cpu`);
  const memoryRequest = readMemoryRequest(requests.memory, `${field}.requests.memory`);
  assertOrder(`${field}.limits.cpu`, limits.cpu, cpu, cpuRequest, formatMilli);
  assertOrder(`${field}.limits.memory`, limits.memory, memory, memoryRequest ?? memoryBefore, formatMemory);
  return { limits: desiredLimits(memory, cpu, cpuRequest), memoryRequest };
}

function desiredLimits(
  memory: Limit<Bytes> | undefined,
  cpu: Limit<MilliCpu> | undefined,
  cpuRequest: MilliCpu | undefined,
): Limits {
  return {
    ...(memory === undefined ? {} : { memory }),
    ...(cpu === undefined ? {} : { cpu: cpuMaxOf(cpu) }),
    ...(cpuRequest === undefined ? {} : { shares: milliCpuToShares(cpuRequest) }),
  };
}

function assertOrder<Amount extends number>(
  field: string,
  text: string,
  limit: Limit<Amount> | undefined,
  request: Amount | undefined,
  format: (amount: Amount) => string,
): void {
  if (limit === undefined || limit === 'max' || request === undefined || limit >= request) return;
  throw invalid(field, text, `the limit is below the request, ${format(request)}`);
}

function readVolume(name: string, text: string): VolumePolicy {
  const field = `volumes[${quoted(name)}]`;
  if (!isDnsLabel(name)) throw invalid(field, name, 'not the name of a volume');
  try {
    return parseVolumeAnnotation(VOLUME_ANNOTATION + name, text).policy;
  } catch (error) {
    if (!(error instanceof ShimError)) throw error;
    // The value has the syntax of the annotation, but the error names the field of the request.
    const message = error.message.replace(`annotation ${VOLUME_ANNOTATION}${name}`, field);
    const context = { field, volume: name, asked: text.slice(0, 80) };
    throw new ShimError(error.code, error.reason, message, context, { cause: error });
  }
}

function assertNotEmpty({ pod, containers, volumes }: RequestedPod): void {
  const texts = [pod, ...Object.values(containers)].flatMap(({ limits, requests }) => [
    limits.cpu,
    limits.memory,
    requests.cpu,
    requests.memory,
  ]);
  if (Object.keys(volumes).length > 0 || texts.some((text) => text !== '')) return;
  throw invalid(
    'resources, containers, volumes',
    '',
    'the request changes nothing: name a limit, a request or a volume',
  );
}

const quoted = (name: string): string => JSON.stringify(name.length > 64 ? `${name.slice(0, 64)}...` : name);
