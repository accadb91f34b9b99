/**
 * Annotations of pods in Kubernetes as requests. Loaded only with --kubeconfig: nothing else may import this folder, but its
 * types.
 */
import type { Log, ReadinessCheck } from '../../observe/index.ts';
import { EventPoster } from './event-poster.ts';
import type { PodEvent } from './events.ts';
import { feedPods } from './feed.ts';
import { followResizes } from './follow.ts';
import { podWatch } from './pod-watch.ts';
import { Reach } from './reach.ts';
import { AnnotationRequests, type NodePods } from './requests.ts';
import { apiOf, openConnection } from '../client/index.ts';
import type { Clock } from '../../core/concurrency/index.ts';
import type { Resizes } from '../../resize/index.ts';

export type { LocalPod, NodePods } from './requests.ts';

export interface KubernetesParts {
  /** A file, or {@link IN_CLUSTER}. */
  readonly kubeconfig: string;
  readonly nodeName: string;
  readonly resizes: Resizes;
  readonly pods: NodePods;
  readonly clock: Clock;
  /** 0 to 1, as Math.random. */
  readonly random: () => number;
  readonly log: Log;
}

export interface KubernetesWatch {
  /** A pod has come to run here. */
  podAdded(uid: string): void;
  /** A memory limit that kubelet has admitted cannot be lowered for now. */
  decreaseDeferred(pod: PodEvent['pod'], why: string): void;
  check(): ReadinessCheck;
  /** At once: what is under way is cut, events that wait are dropped. */
  close(): void;
}

/** Watches this node's pods and acts on their annotations, until it is closed. Neither waits for the API server nor throws. */
export function watchAnnotations(parts: KubernetesParts): KubernetesWatch {
  const { kubeconfig, nodeName, resizes, pods, clock, random, log } = parts;
  const stop = new AbortController();
  const { signal } = stop;
  const api = apiOf(() => openConnection(kubeconfig));
  const poster = new EventPoster({ api, nodeName, clock, random, log });
  const reach = new Reach(log, nodeName);
  const requests = new AnnotationRequests({ resizes, pods, post: (event) => poster.post(event), clock, random, log });
  void followResizes(parts, (resize) => requests.reached(resize), signal);
  void poster.run(signal);
  void feedPods({ watch: podWatch(api, nodeName), audience: requests, reach, clock, random }, signal);
  return {
    podAdded: (uid) => requests.look(uid),
    decreaseDeferred: (pod, why) => poster.post({ pod, reason: 'MemoryDecreaseDeferred', note: why, at: clock.now() }),
    check: () => reach.check(),
    close() {
      stop.abort();
      requests.close();
    },
  };
}
