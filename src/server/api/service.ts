import { setImmediate as nextTurn } from 'node:timers/promises';
import type { CancelSignal } from '../../core/index.ts';
import {
  type Clock,
  Code,
  contentsOf,
  createWriter,
  type ReadinessReport,
  Reason,
  ShimError,
  textOf,
  untilAborted,
  varintKey,
} from '../../core/index.ts';
import {
  apiRequester,
  type PodDirectory,
  type PodIdentity,
  type Resize,
  type ResizeEvent,
  type Resizes,
  type ResizeWatch,
  viewsOf,
} from '../../sandbox/index.ts';
import type { CallTrace, HandlerCall, RawUnaryHandler } from '../unary/call.ts';
import { encode, type Messages, PACKAGE, type Requests } from './messages.ts';
import { dryRunReport, eventReport, podReport, resizeReport } from './reports.ts';
import { readPodRef, readRequest, readRequestedPod, readTerms } from './requests.ts';

export interface ServiceOptions {
  readonly resizes: Resizes;
  readonly pods: PodDirectory;
  readonly clock: Clock;
  /** Must not reject. */
  readonly readiness: () => Promise<ReadinessReport>;
}

/** Returns `/criresize.v1alpha1.ResizeService/<method>`. */
export const methodPath = (method: string): string => `/${PACKAGE}.ResizeService/${method}`;

/** The path of the only call that is a stream. */
export const WATCH_PATH = methodPath('WatchResizes');

type Method = 'ResizePod' | 'GetPod' | 'GetResize' | 'CancelResize';
type Answer<Name extends Method> = (
  request: Requests[`${Name}Request`],
  call: HandlerCall,
  trace: CallTrace,
) => Promise<Messages[`${Name}Response`]>;

/** Returns the handlers of the unary calls, by path. */
export function unaryHandlers(options: ServiceOptions): ReadonlyMap<string, RawUnaryHandler> {
  const { resizes } = options;
  return new Map([
    [healthPath, healthCheck(options.readiness)],
    handler('ResizePod', (request, call, trace) => resizePod(options, request, call, trace)),
    handler('GetPod', ({ pod }, call, trace) => getPod(options, pod, call, trace)),
    [methodPath('ListPods'), (call) => listPods(options, call)],
    handler('GetResize', ({ id }, _, trace) => {
      trace.fields.resize = id.slice(0, 64);
      return Promise.resolve({ resize: reportOf(options, resizes.get(id)) });
    }),
    handler('CancelResize', async ({ id }, { signal }, trace) => {
      trace.fields.resize = id.slice(0, 64);
      // A cancellation waits for an attempt in progress, and is carried out even if its client leaves.
      return { resize: reportOf(options, await untilAborted(resizes.cancel(id), signal)) };
    }),
  ]);
}

function handler<Name extends Method>(name: Name, answer: Answer<Name>): [string, RawUnaryHandler] {
  const handle: RawUnaryHandler = async (call, trace) => {
    const request = readRequest<`${Name}Request`>(`${name}Request`, call.request);
    return encode(`${name}Response`, await answer(request, call, trace));
  };
  return [methodPath(name), handle];
}

async function resizePod(
  options: ServiceOptions,
  request: Requests['ResizePodRequest'],
  call: HandlerCall,
  trace: CallTrace,
): Promise<Messages['ResizePodResponse']> {
  const { resizes, pods, clock } = options;
  const { dryRun, defer, timeoutMs } = readTerms(request);
  const asked = readRequestedPod(request);
  // Read while the client waits: its process id may be another's later.
  const requester = apiRequester(call.client);
  // Not cancelled by the client's signal: a resize is carried out even if its client leaves.
  const pod = await findPod(pods, request.pod, undefined, trace);
  const deadline = Math.min(call.deadline, clock.now() + timeoutMs);
  if (dryRun) {
    // A dry run waits for its turn, and changes nothing.
    const outcome = await untilAborted(resizes.dryRun(pod, asked, { deadline, defer }), call.signal);
    return { resize: dryRunReport(pod, outcome, clock.wallTime(), pods.containerName) };
  }
  try {
    const resize = await resizes.resize(pod, asked, {
      defer,
      timeoutMs,
      deadline,
      requester,
    });
    Object.assign(trace.fields, { resize: resize.id, state: resize.state });
    return { resize: reportOf(options, resize) };
  } catch (error) {
    if (error instanceof ShimError) Object.assign(trace.fields, { resize: error.context.resize, reason: error.reason });
    throw error;
  }
}

async function getPod(
  options: ServiceOptions,
  ref: Requests['GetPodRequest']['pod'],
  { signal }: HandlerCall,
  trace: CallTrace,
): Promise<Messages['GetPodResponse']> {
  const pod = await findPod(options.pods, ref, signal, trace);
  return { pod: await reportPod(options, pod, signal) };
}

/**
 * Lists all pods. A pod that cannot be read (it may be terminating) is listed with the reason. Each pod is encoded once
 * it is read, because encoding all at the end would block the event loop. Concatenated encoded messages are one message
 * with all pods (https://protobuf.dev/programming-guides/encoding/#last-one-wins).
 */
async function listPods(options: ServiceOptions, { request, signal }: HandlerCall): Promise<Buffer> {
  readRequest('ListPodsRequest', request);
  const encoded: Uint8Array[] = [];
  for await (const { at, pod, view } of viewsOf(options.pods, await options.pods.list(signal), signal)) {
    const report = podReport({ ...storedOf(options, pod), view });
    // A copy with memory of its own. A small Buffer is part of a pool of 64 KiB, which stays in memory as long as it
    // does.
    encoded[at] = new Uint8Array(encode('ListPodsResponse', { pods: [report] }));
  }
  // The last views, the response and its sending each have a turn of the event loop.
  await nextTurn();
  const response = Buffer.concat(encoded);
  await nextTurn();
  return response;
}

async function reportPod(options: ServiceOptions, pod: PodIdentity, signal: CancelSignal): Promise<Messages['Pod']> {
  const view = await options.pods.describe(pod.sandboxId, undefined, signal);
  return podReport({ ...storedOf(options, pod), view });
}

const storedOf = ({ resizes, pods }: ServiceOptions, pod: PodIdentity) => ({
  pod,
  nameOf: pods.containerName,
  history: resizes.historyOf(pod.sandboxId),
  memory: resizes.memoryRequestsOf(pod.sandboxId),
});

function reportOf({ pods }: ServiceOptions, resize: Resize): Messages['Resize'] {
  return resizeReport(resize, pods.containerName);
}

async function findPod(
  pods: PodDirectory,
  ref: Requests['GetPodRequest']['pod'],
  signal: CancelSignal | undefined,
  trace: CallTrace,
): Promise<PodIdentity> {
  const pod = await pods.find(readPodRef(ref), signal);
  trace.fields.pod = pod.sandboxId;
  return pod;
}

/**
 * Starts a watch for the events of one pod, or of all pods.
 * @param owner the client, which has a share of all watches
 */
export async function watchResizes(
  options: ServiceOptions,
  { request, signal }: Pick<HandlerCall, 'request' | 'signal'>,
  owner: string | undefined,
  trace: CallTrace,
): Promise<ResizeWatch> {
  const { pod: ref, history } = readRequest('WatchResizesRequest', request);
  const pod = ref === null ? undefined : await findPod(options.pods, ref, signal, trace);
  return options.resizes.watch(pod, { owner, withHistory: history });
}

/** Encodes an event for WatchResizes. */
export function encodeEvent({ pods }: ServiceOptions, event: ResizeEvent): Buffer {
  return encode('ResizeEvent', eventReport(event, pods.containerName));
}

/**
 * grpc.health.v1.Health/Check, for grpc_health_probe and kubelet's gRPC probes. The empty service is the process
 * itself; the resize service is healthy if resizes are possible. Watch is not implemented, which the protocol allows.
 */
const healthPath = '/grpc.health.v1.Health/Check';

/** HealthCheckResponse.ServingStatus. */
const SERVING = 1;
const NOT_SERVING = 2;
const SERVICE = `${PACKAGE}.ResizeService`;

/** The only field of both messages: `service` in HealthCheckRequest, `status` in HealthCheckResponse. */
const FIELD = 1;

/** Serves Health/Check. */
function healthCheck(readiness: () => Promise<ReadinessReport>): RawUnaryHandler {
  return async (call, trace) => {
    const service = readService(call.request);
    if (service === '') return answer(SERVING);
    if (service !== SERVICE) throw unknownService(service);
    const { ready, checks } = await readiness();
    const failing = checks.filter((check) => !check.ready).map(({ name }) => name);
    if (failing.length > 0) trace.fields['notReady'] = failing.join(', ');
    return answer(ready ? SERVING : NOT_SERVING);
  };
}

function readService(request: Buffer): string {
  try {
    return textOf(contentsOf(request, FIELD).at(-1));
  } catch (error) {
    const message = `HealthCheckRequest: cannot decode ${request.length} bytes`;
    const context = { field: 'HealthCheckRequest' };
    throw new ShimError(Code.INVALID_ARGUMENT, Reason.INVALID_VALUE, message, context, { cause: error });
  }
}

const answer = (status: number): Buffer => Buffer.from(createWriter().uint32(varintKey(FIELD)).int32(status).finish());

/** Returns NOT_FOUND, as the health checking protocol requires. */
function unknownService(service: string): ShimError {
  const asked = service.slice(0, 80);
  const message = `unknown service ${JSON.stringify(asked)}: expected "" or ${SERVICE}`;
  return new ShimError(Code.NOT_FOUND, Reason.UNKNOWN_SERVICE, message, { field: 'service', asked });
}
