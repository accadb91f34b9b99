import { type Bytes, type Limit, ShimError } from '../../core/index.ts';
import { type MilliCpu, milliCpuToShares } from '../../kubelet/index.ts';
import { VOLUME_ANNOTATION, type VolumePolicy, isDnsLabel, parseVolumeAnnotation } from '../../tmpfs/index.ts';
import { type DesiredPod, type MemoryRequests, memoryRequestIn } from '../model/resize-request.ts';
import {
  cpuMaxOf,
  formatMemory,
  formatMilli,
  invalid,
  readCpuLimit,
  readCpuRequest,
  readMemoryLimit,
  readMemoryRequest,
} from '../model/amounts.ts';
import type { Limits } from '../../sandbox/index.ts';
import { type PodField, amountField, volumeField } from '../history/newest-values.ts';
import type { ValueChange } from '../model/value-changes.ts';

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

/** Returns the fields that a request sets. */
export function fieldsOf({ pod, containers, volumes }: RequestedPod): ReadonlySet<PodField> {
  return new Set([
    ...amountsOf(undefined, pod),
    ...Object.entries(containers).flatMap(([name, resources]) => amountsOf(name, resources)),
    ...Object.keys(volumes).map(volumeField),
  ]);
}

/** Returns what a request asks for, before the pod is read: the present values are not known. */
export function askedChanges({ pod, containers, volumes }: RequestedPod): readonly ValueChange[] {
  return [
    ...textsOf('pod', pod),
    ...Object.entries(containers).flatMap(([name, resources]) => textsOf(`container ${name}`, resources)),
    ...Object.entries(volumes).map(([name, to]) => ({ value: `volume ${name}`, from: '', to })),
  ];
}

function textsOf(what: string, { limits, requests }: RequestedResources): ValueChange[] {
  const texts = [
    ['memory', limits.memory],
    ['cpu', limits.cpu],
    ['cpu request', requests.cpu],
    ['memory request', requests.memory],
  ] as const;
  return texts.flatMap(([name, to]) => (isSet(to) ? [{ value: `${what} ${name}`, from: '', to }] : []));
}

/** Returns the request without the fields that `drops` names. Undefined when nothing is left of it. */
export function withoutFields(requested: RequestedPod, drops: (field: PodField) => boolean): RequestedPod | undefined {
  const left: RequestedPod = {
    pod: withoutAmounts(undefined, requested.pod, drops),
    containers: Object.fromEntries(
      Object.entries(requested.containers).map(([name, resources]) => [name, withoutAmounts(name, resources, drops)]),
    ),
    volumes: Object.fromEntries(Object.entries(requested.volumes).filter(([name]) => !drops(volumeField(name)))),
  };
  return fieldsOf(left).size === 0 ? undefined : left;
}

/** `''` leaves a value unchanged. */
const isSet = (text: string): boolean => text !== '';

function amountsOf(container: string | undefined, { limits, requests }: RequestedResources): PodField[] {
  return [
    ...(isSet(limits.cpu) ? [amountField(container, 'limits.cpu')] : []),
    ...(isSet(limits.memory) ? [amountField(container, 'limits.memory')] : []),
    ...(isSet(requests.cpu) ? [amountField(container, 'requests.cpu')] : []),
    ...(isSet(requests.memory) ? [amountField(container, 'requests.memory')] : []),
  ];
}

function withoutAmounts(
  container: string | undefined,
  { limits, requests }: RequestedResources,
  drops: (field: PodField) => boolean,
): RequestedResources {
  const left = (text: string, amount: Parameters<typeof amountField>[1]): string =>
    drops(amountField(container, amount)) ? '' : text;
  return {
    limits: { cpu: left(limits.cpu, 'limits.cpu'), memory: left(limits.memory, 'limits.memory') },
    requests: { cpu: left(requests.cpu, 'requests.cpu'), memory: left(requests.memory, 'requests.memory') },
  };
}
