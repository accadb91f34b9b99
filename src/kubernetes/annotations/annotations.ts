/** Kubernetes pod annotations as resize requests. Only --kubeconfig loads it: others import only its types. */
import {
  type Clock,
  type Counters,
  type Log,
  messageOf,
  type ReadinessCheck,
  Reason,
  ShimError,
} from '../../core/index.ts';
import {
  type NodeAllocatable,
  type PodIdentity,
  type PodSpecs,
  type Resize,
  type ResizeEvent,
  type Resizes,
  retryDelay,
} from '../../sandbox/index.ts';
import { apiOf } from '../client/api.ts';
import { openConnection } from '../client/connection.ts';
import type { PodAudience } from '../pods/audience.ts';
import { type NodePodNames, PodClaims } from '../pods/claims.ts';
import { feedPods, Reach, wait } from '../pods/feed.ts';
import { AllocatableStore, feedNode } from '../pods/node-feed.ts';
import type { ApiPodIdentity } from '../pods/pod.ts';
import { podWatch } from '../pods/pod-watch.ts';
import { SpecStore, type SpecStoreOptions } from '../pods/spec-store.ts';
import { EventPoster, type PodEvent } from './events.ts';
import { AnnotationRequests, type NodePods } from './requests.ts';
import { ResizeEvents } from './resize-events.ts';

export interface KubernetesOptions {
  /** A file, or {@link IN_CLUSTER}. */
  readonly kubeconfig: string;
  readonly nodeName: string;
  readonly resizes: Resizes;
  readonly pods: NodePods &
    SpecStoreOptions & {
      /** Must not throw. */
      named(uid: string): readonly NodePodNames[];
    };
  readonly counters: Pick<Counters, 'ignoredPod'>;
  readonly clock: Clock;
  /** 0 to 1, as Math.random. */
  readonly random: () => number;
  readonly log: Log;
}

export interface KubernetesWatch {
  /** A pod was added to this node. */
  podAdded(pod: ApiPodIdentity): void;
  /** The specs of the pods of this node, as far as they are known. */
  readonly specs: PodSpecs;
  /** The allocatable of this node, as far as it is known. */
  readonly allocatable: NodeAllocatable;
  /** kubelet cannot lower an admitted memory limit for now. */
  decreaseDeferred(pod: PodEvent['pod'], why: string): void;
  /** A volume is larger than the memory limit of its pod, after a resize of either. */
  volumeExceeds(pod: PodIdentity, volume: string, warning: string): void;
  /** Clients were served without the shim for this time, in milliseconds since the epoch. */
  bypassEnded(times: { readonly start: number; readonly end: number }): void;
  /** kubelet no longer uses the shim, or uses it again. */
  endpointChanged(isDrift: boolean, note: string): void;
  check(): ReadinessCheck;
  /** Closes immediately: aborts running requests and drops pending events. */
  close(): void;
}

/** Watches this node's pods and acts on annotations until closed. Never waits for the API server or throws. */
export function watchAnnotations(options: KubernetesOptions): KubernetesWatch {
  const { kubeconfig, nodeName, resizes, pods, clock, random, log, counters } = options;
  const stop = new AbortController();
  const { signal } = stop;
  const api = apiOf(() => openConnection(kubeconfig));
  const poster = new EventPoster({ api, nodeName, clock, random, log });
  const reach = new Reach(log, nodeName);
  const post = (event: PodEvent): void => poster.post(event);
  const requests = new AnnotationRequests({ resizes, pods, post, clock, random, log });
  const specs = new SpecStore(pods);
  const events = new ResizeEvents({ specs, post });
  void followResizes(
    options,
    (event, resize) => {
      events.reached(event);
      if (resize !== undefined) requests.reached(resize);
    },
    signal,
  );
  void poster.run(signal);
  const claims = new PodClaims({ podsOf: (uid) => pods.named(uid), log, counters });
  const audience = all(specs, claims, requests);
  const allocatable = new AllocatableStore();
  void feedNode({ api, nodeName, store: allocatable, clock, log }, signal);
  void feedPods(
    { watch: podWatch(api, nodeName), audience, reach, skipped: skippedIn(options), clock, random },
    signal,
  );
  return {
    podAdded(pod) {
      claims.look(pod.uid);
      specs.look(pod);
      requests.look(pod);
    },
    specs,
    allocatable,
    ...eventsOf({ poster, specs, nodeName, clock }),
    check: () => reach.check(),
    close() {
      stop.abort();
      requests.close();
    },
  };
}

type Reports = Pick<KubernetesWatch, 'decreaseDeferred' | 'volumeExceeds' | 'bypassEnded' | 'endpointChanged'>;

/** Returns the functions that post events. */
const eventsOf = ({
  poster,
  specs,
  nodeName,
  clock,
}: {
  readonly poster: EventPoster;
  readonly specs: PodSpecs;
  readonly nodeName: string;
  readonly clock: Clock;
}): Reports => ({
  volumeExceeds(pod, volume, warning) {
    const reason = 'VolumeSizeExceedsMemoryLimit';
    if (specs.of(pod) !== undefined)
      poster.post({ pod, reason, note: `volume ${volume} ${warning}`, at: clock.wallTime() });
  },
  decreaseDeferred: (pod, why) =>
    poster.post({ pod, reason: 'MemoryDecreaseDeferred', note: why, at: clock.wallTime() }),
  bypassEnded: ({ start, end }) =>
    poster.post({ node: nodeName, reason: 'ShimBypassed', note: bypassNote(start, end), at: clock.wallTime() }),
  endpointChanged: (isDrift, note) =>
    poster.post({
      node: nodeName,
      reason: isDrift ? 'ShimDrift' : 'ShimDriftEnded',
      note: `kubelet ${note}`,
      at: clock.wallTime(),
    }),
});

/** Returns a function that reports an object that was skipped because it is too large. */
const skippedIn =
  ({ counters, log }: Pick<KubernetesOptions, 'counters' | 'log'>) =>
  (pod?: ApiPodIdentity): void => {
    counters.ignoredPod('too_large');
    const names = pod && { namespace: pod.namespace, pod: pod.name, uid: pod.uid };
    log.warn({ ...names, reason: 'too_large' }, 'pod object ignored: it is too large');
  };

const bypassNote = (start: number, end: number): string =>
  `kubelet reached containerd without the shim from ${new Date(start).toISOString()} to ${new Date(end).toISOString()}: ` +
  'resizes in this time were neither ordered nor reclaimed for; see journalctl -u cri-resize-shim on the node';

/** Passes pods on to all, in this order. */
const all = (...audiences: readonly PodAudience[]): PodAudience => ({
  replace(pods) {
    for (const audience of audiences) audience.replace(pods);
  },
  present(pod) {
    for (const audience of audiences) audience.present(pod);
  },
  gone(pod) {
    for (const audience of audiences) audience.gone(pod);
  },
});

/**
 * Passes on the events of all resizes, starting with the states of unfinished ones, until aborted. A new state of a
 * resize of the queue comes with the resize; requests of the CRI are in no queue. Never rejects.
 */
export async function followResizes(
  options: {
    readonly resizes: Pick<Resizes, 'watch' | 'find'>;
    readonly clock: Clock;
    /** 0 to 1, as Math.random. */
    readonly random: () => number;
    readonly log: Log;
  },
  reached: (event: ResizeEvent, resize: Resize | undefined) => void,
  signal: AbortSignal,
): Promise<void> {
  const { resizes, clock, random, log } = options;
  for (let failures = 0; !signal.aborted; ) {
    try {
      const watch = resizes.watch();
      signal.addEventListener('abort', () => watch.end(), { once: true });
      for await (const event of watch) {
        reached(event, event.what.kind === 'state' ? resizes.find(event.resize) : undefined);
        failures = 0;
      }
    } catch (error) {
      if (error instanceof ShimError && error.reason === Reason.STOPPING) return;
      // Too many watchers, or this watcher was too slow and missed events: later ones are still passed on.
      failures += 1;
      log.warn({ error: messageOf(error) }, 'watch of resizes failed; retrying');
      await wait(clock, retryDelay(failures, random()), signal);
    }
  }
}
