/** Pod annotations in Kubernetes as resize requests. Loaded only with --kubeconfig: other folders import only its types. */
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
  /** A pod was added to this node. */
  podAdded(uid: string): void;
  /** kubelet cannot lower an admitted memory limit for now. */
  decreaseDeferred(pod: PodEvent['pod'], why: string): void;
  check(): ReadinessCheck;
  /** Closes immediately: aborts running requests and drops pending events. */
  close(): void;
}

/** Watches the pods of this node and acts on their annotations until closed. Does not wait for the API server, and never throws. */
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
