import { type Clock, type Log, oncePerKey } from '../../core/index.ts';
import { type PodIdentity, retryDelay } from '../../sandbox/index.ts';
import { isDnsLabel } from '../../tmpfs/index.ts';
import { type Api, readText } from '../client/api.ts';
import { ApiRefusal, kindOf, wordsOf } from '../client/errors.ts';
import { eventOf } from '../client/event-body.ts';
import { wait } from '../pods/feed.ts';

/** Reasons of pod events. Documented in docs/volumes.md unless noted otherwise. */
export type EventReason =
  /** KEP-1287, as kubelet names them. Documented in docs/resize.md. */
  | 'ResizeStarted'
  | 'ResizeCompleted'
  | 'ResizeDeferred'
  | 'ResizeInfeasible'
  | 'ResizeError'
  | 'VolumeResized'
  | 'VolumeResizeDeferred'
  | 'VolumeResizeInfeasible'
  | 'VolumeResizeCanceled'
  | 'VolumeSizeExceedsMemoryLimit'
  /** Documented in docs/foresight.md. */
  | 'MemoryDecreaseDeferred';

/** An event about the node itself. */
export interface NodeEvent {
  readonly node: string;
  /** Documented in docs/bypass.md and docs/kubernetes.md. */
  readonly reason: 'ShimBypassed' | 'ShimDrift' | 'ShimDriftEnded';
  readonly note: string;
  /** Milliseconds since the epoch. */
  readonly at: number;
}

export interface PodEvent {
  readonly pod: Pick<PodIdentity, 'uid' | 'namespace' | 'name'>;
  readonly reason: EventReason;
  readonly note: string;
  /** Milliseconds since the epoch. */
  readonly at: number;
}

const TYPES: Readonly<Record<EventReason, 'Normal' | 'Warning'>> = {
  ResizeStarted: 'Normal',
  ResizeCompleted: 'Normal',
  ResizeDeferred: 'Warning',
  ResizeInfeasible: 'Warning',
  ResizeError: 'Warning',
  VolumeResized: 'Normal',
  VolumeResizeCanceled: 'Normal',
  VolumeResizeDeferred: 'Warning',
  VolumeResizeInfeasible: 'Warning',
  VolumeSizeExceedsMemoryLimit: 'Warning',
  MemoryDecreaseDeferred: 'Warning',
};

/** Returns the namespace of an event: `default` for events of nodes, which have none. */
export const namespaceOf = (event: PodEvent | NodeEvent): string => ('pod' in event ? event.pod.namespace : 'default');

/** Returns the event for events.k8s.io/v1. */
export const eventBody = (event: PodEvent | NodeEvent, nodeName: string): object =>
  'pod' in event ? podEventBody(event, nodeName) : nodeEventBody(event);

function nodeEventBody({ node, reason, note, at }: NodeEvent): object {
  return eventOf({
    namespace: 'default',
    name: node,
    reporter: CONTROLLER,
    instance: node,
    // As in kubelet's own events of its node: kubectl describe node finds them by this uid.
    regarding: { apiVersion: 'v1', kind: 'Node', name: node, uid: node },
    action: reason === 'ShimBypassed' ? 'Bypass' : 'Watch',
    type: reason === 'ShimDriftEnded' ? 'Normal' : 'Warning',
    reason,
    note,
    at,
  });
}

function podEventBody({ pod, reason, note, at }: PodEvent, nodeName: string): object {
  const { uid, namespace, name } = pod;
  return eventOf({
    namespace,
    name,
    reporter: CONTROLLER,
    instance: nodeName,
    regarding: { apiVersion: 'v1', kind: 'Pod', namespace, name, uid },
    action: actionOf(reason),
    type: TYPES[reason],
    reason,
    note,
    at,
  });
}

const actionOf = (reason: EventReason): string => {
  if (reason === 'MemoryDecreaseDeferred') return 'LowerMemory';
  return reason.startsWith('Resize') ? 'ResizePod' : 'ResizeVolume';
};

export const CONTROLLER = 'cri-resize-shim';

export interface PosterOptions {
  readonly api: Api;
  readonly nodeName: string;
  readonly clock: Clock;
  /** 0 to 1, as Math.random. */
  readonly random: () => number;
  readonly log: Log;
}

/** Maximum number of pending events; the oldest are dropped first. */
const MOST_WAITING = 256;
const IDLE_MS = 10_000;
const LONGEST_ANSWER = 64 * 1024;
/** After this many failures of an event, other namespaces go first: a webhook may fail or hang for its namespace. */
const MOST_TRIES_IN_ROW = 3;
const ALREADY_EXISTS = 409;

/** An event that is to be posted. */
interface Waiting {
  readonly namespace: string;
  /** Identical in each attempt: if a response was lost, the server reports on a retry that the name is taken. */
  readonly body: object;
  /** Failures since the event was last moved behind others. */
  failures: number;
}

/**
 * Posts events one at a time, in order within a namespace. Retries, except for events that the server rejects
 * permanently. A namespace whose events fail does not delay other namespaces.
 */
export class EventPoster {
  readonly #isFirst = oncePerKey(64);
  #waiting: Waiting[] = [];
  #wake: () => void = () => undefined;

  constructor(private readonly options: PosterOptions) {}

  post(event: PodEvent | NodeEvent): void {
    // The namespace becomes part of the request's path: `..` would lead to another path.
    const namespace = namespaceOf(event);
    if (!isDnsLabel(namespace)) {
      this.#dropped('namespace', 'the namespace of the pod is not a valid name');
      return;
    }
    this.#waiting.push({ namespace, body: eventBody(event, this.options.nodeName), failures: 0 });
    if (this.#waiting.length > MOST_WAITING) {
      this.#waiting.shift();
      this.#dropped('too many', 'too many pending events');
    }
    this.#wake();
  }

  /** Runs until aborted, then drops pending events. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    signal.addEventListener('abort', () => this.#wake());
    for (let failures = 0; !signal.aborted; ) {
      const [event] = this.#waiting;
      if (event === undefined) {
        await new Promise<void>((resolve) => (this.#wake = resolve));
        continue;
      }
      const error = await this.#try(event, signal);
      if (error === undefined || isFinal(error)) {
        failures = 0;
        // The event may have been dropped meanwhile because there were too many.
        this.#waiting = this.#waiting.filter((other) => other !== event);
        if (error !== undefined) this.#dropped(kindOf(error), wordsOf(error));
      } else {
        failures += 1;
        this.#failed(event, error);
        const asked = error instanceof ApiRefusal ? error.retryAfterMs : 0;
        await wait(this.options.clock, Math.max(asked, retryDelay(failures, this.options.random())), signal);
      }
    }
  }

  /**
   * Moves a namespace's events behind all others after repeated failures. If the server reports an error for an event,
   * the namespace's other events also go before it.
   */
  #failed(event: Waiting, error: unknown): void {
    event.failures += 1;
    if (event.failures < MOST_TRIES_IN_ROW || !this.#waiting.includes(event)) return;
    event.failures = 0;
    const isSame = ({ namespace }: Waiting): boolean => namespace === event.namespace;
    const [same, others] = [this.#waiting.filter(isSame), this.#waiting.filter((other) => !isSame(other))];
    const isItsOwn = error instanceof ApiRefusal && error.status >= 500;
    this.#waiting = [...others, ...(isItsOwn ? [...same.filter((other) => other !== event), event] : same)];
  }

  async #try({ namespace, body }: Waiting, signal: AbortSignal): Promise<unknown> {
    const path = `/apis/events.k8s.io/v1/namespaces/${encodeURIComponent(namespace)}/events`;
    try {
      const response = await this.options.api({ method: 'POST', path, body, idleMs: IDLE_MS, signal });
      // The event exists even if the response cannot be read.
      await readText(response, LONGEST_ANSWER).catch(() => undefined);
      return undefined;
    } catch (error) {
      return error instanceof ApiRefusal && error.status === ALREADY_EXISTS ? undefined : error;
    }
  }

  #dropped(kind: string, error: string): void {
    if (this.#isFirst(kind)) this.options.log.warn({ error }, 'pod events dropped');
  }
}

/** Whether a retry is useless. False for 429, and for 401 because credentials may be replaced. */
const isFinal = (error: unknown): boolean =>
  error instanceof ApiRefusal && error.status < 500 && error.status !== 401 && error.status !== 429;
