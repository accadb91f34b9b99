import type { ServerUnaryCall } from '@grpc/grpc-js';
import { ShimError, messageOf } from '../core/errors/index.ts';
import type { ReadinessReport } from '../observe/index.ts';
import { healthCheck, healthPath } from './health.ts';
import { dryRunReport, eventReport, podReport, resizeReport } from './reports.ts';
import { readRequestedPod, readPodRef, readRequest, readTerms } from './requests.ts';
import { type CallTrace, type RawUnaryHandler, clientOf, deadlineOf } from '../grpc/index.ts';
import { PACKAGE, type Requests, type Responses, type WirePod, type WireResize, encodeResponse } from './wire/index.ts';
import type { Clock } from '../core/concurrency/index.ts';
import {
  type PodDirectory,
  type Resize,
  type ResizeEvent,
  type ResizeWatch,
  type Resizes,
  apiRequester,
} from '../resize/index.ts';
import type { PodIdentity } from '../sandbox/index.ts';

export interface ServiceParts {
  readonly resizes: Resizes;
  readonly pods: PodDirectory;
  readonly clock: Clock;
  /** Must not reject. */
  readonly readiness: () => Promise<ReadinessReport>;
}

/** Returns `/criresize.v1alpha1.ResizeService/<method>`. */
export const methodPath = (method: string): string => `/${PACKAGE}.ResizeService/${method}`;

type Method = 'ResizePod' | 'GetPod' | 'ListPods' | 'GetResize' | 'CancelResize';
type Answer<Name extends Method> = (
  request: Requests[`${Name}Request`],
  call: ServerUnaryCall<Buffer, Buffer>,
  trace: CallTrace,
) => Promise<Responses[`${Name}Response`]>;

/** Returns the handlers of the unary calls, by path. */
export function unaryHandlers(parts: ServiceParts): ReadonlyMap<string, RawUnaryHandler> {
  const { resizes } = parts;
  return new Map([
    [healthPath, healthCheck(parts.readiness)],
    handler('ResizePod', (request, call, trace) => resizePod(parts, request, call, trace)),
    handler('GetPod', ({ pod }, _, trace) => getPod(parts, pod, trace)),
    handler('ListPods', () => listPods(parts)),
    handler('GetResize', ({ id }, _, trace) => {
      trace.fields.resize = id.slice(0, 64);
      return Promise.resolve({ resize: reportOf(parts, resizes.get(id)) });
    }),
    handler('CancelResize', async ({ id }, _, trace) => {
      trace.fields.resize = id.slice(0, 64);
      return { resize: reportOf(parts, await resizes.cancel(id)) };
    }),
  ]);
}

function handler<Name extends Method>(name: Name, answer: Answer<Name>): [string, RawUnaryHandler] {
  const handle: RawUnaryHandler = async (call, trace) => {
    const request = readRequest<`${Name}Request`>(`${name}Request`, call.request);
    return encodeResponse<`${Name}Response`>(`${name}Response`, await answer(request, call, trace));
  };
  return [methodPath(name), handle];
}

async function resizePod(
  parts: ServiceParts,
  request: Requests['ResizePodRequest'],
  call: ServerUnaryCall<Buffer, Buffer>,
  trace: CallTrace,
): Promise<Responses['ResizePodResponse']> {
  const { resizes, pods, clock } = parts;
  const { dryRun, defer, timeoutMs } = readTerms(request);
  const asked = readRequestedPod(request);
  const pod = await findPod(pods, request.pod, trace);
  const deadline = Math.min(deadlineOf(call), clock.now() + timeoutMs);
  if (dryRun) {
    const outcome = await resizes.dryRun(pod, asked, deadline);
    return { resize: dryRunReport(pod, outcome, clock.wallTime(), pods.containerName) };
  }
  try {
    const resize = await resizes.resize(pod, asked, {
      defer,
      timeoutMs,
      deadline,
      requester: apiRequester(clientOf(call)),
    });
    Object.assign(trace.fields, { resize: resize.id, state: resize.state });
    return { resize: reportOf(parts, resize) };
  } catch (error) {
    if (error instanceof ShimError) Object.assign(trace.fields, { resize: error.context.resize, reason: error.reason });
    throw error;
  }
}

async function getPod(
  parts: ServiceParts,
  ref: Requests['GetPodRequest']['pod'],
  trace: CallTrace,
): Promise<Responses['GetPodResponse']> {
  const pod = await findPod(parts.pods, ref, trace);
  return { pod: await reportPod(parts, pod) };
}

/** Lists all pods. One that cannot be read (it may be terminating) is listed with the reason. */
async function listPods(parts: ServiceParts): Promise<Responses['ListPodsResponse']> {
  const reports: WirePod[] = [];
  // One by one: latency does not matter to people and agents, and this keeps the load on the node low.
  for (const pod of await parts.pods.list()) {
    try {
      reports.push(await reportPod(parts, pod));
    } catch (error) {
      if (!(error instanceof ShimError)) throw error;
      reports.push(podReport({ ...storedOf(parts, pod), view: { reason: error.reason, message: messageOf(error) } }));
    }
  }
  return { pods: reports };
}

async function reportPod(parts: ServiceParts, pod: PodIdentity): Promise<WirePod> {
  const view = await parts.pods.describe(pod.sandboxId);
  return podReport({ ...storedOf(parts, pod), view });
}

const storedOf = ({ resizes, pods }: ServiceParts, pod: PodIdentity) => ({
  pod,
  nameOf: pods.containerName,
  history: resizes.historyOf(pod.sandboxId),
  memory: resizes.memoryRequestsOf(pod.sandboxId),
});

function reportOf({ pods }: ServiceParts, resize: Resize): WireResize {
  return resizeReport(resize, pods.containerName);
}

async function findPod(
  pods: PodDirectory,
  ref: Requests['GetPodRequest']['pod'],
  trace: CallTrace,
): Promise<PodIdentity> {
  const pod = await pods.find(readPodRef(ref));
  trace.fields.pod = pod.sandboxId;
  return pod;
}

/**
 * Starts a watch for the events of one pod, or of all pods.
 * @param owner the client, which has a share of all watches
 */
export async function watchResizes(
  parts: ServiceParts,
  request: Buffer,
  owner: string | undefined,
  trace: CallTrace,
): Promise<ResizeWatch> {
  const { pod, history } = readRequest('WatchResizesRequest', request);
  const sandboxId = pod === null ? undefined : (await findPod(parts.pods, pod, trace)).sandboxId;
  return parts.resizes.watch(sandboxId, { owner, withHistory: history });
}

/** Encodes an event for WatchResizes. */
export function encodeEvent({ pods }: ServiceParts, event: ResizeEvent): Buffer {
  return encodeResponse('ResizeEvent', eventReport(event, pods.containerName));
}
