import type { Counters, IgnoredPodReason, Log } from '../../core/index.ts';
import type { PodAudience } from './audience.ts';
import { type ApiPod, type ApiPodIdentity, keyOf, whyForeign } from './pod.ts';

/** The names of a pod of this node, as the registry has them. */
export interface NodePodNames extends ApiPodIdentity {
  /** Whether kubelet has read the pod from a file or a URL, and not from the API server. */
  readonly isStatic: boolean;
}

export interface ClaimsOptions {
  /** The pods of this node that have a uid. Must not throw. */
  readonly podsOf: (uid: string) => readonly NodePodNames[];
  readonly log: Log;
  readonly counters: Pick<Counters, 'ignoredPod'>;
}

type Claim = Pick<ApiPod, 'uid' | 'namespace' | 'name' | 'isMirror'>;

/**
 * Reports the objects of the API server that claim the uid of another pod, each once. They are ignored where objects
 * are used ({@link whyForeign}): the registry decides, so the order in which objects appear does not matter.
 */
export class PodClaims implements PodAudience {
  /** The claims by uid and key. */
  #claims = new Map<string, Map<string, Claim>>();
  /** The keys of the reported objects that are still there. */
  #reported = new Set<string>();

  constructor(private readonly options: ClaimsOptions) {}

  replace(pods: readonly ApiPod[]): void {
    this.#claims = new Map();
    const present = new Set(pods.map(keyOf));
    this.#reported = new Set([...this.#reported].filter((key) => present.has(key)));
    for (const pod of pods) this.present(pod);
  }

  present({ uid, namespace, name, isMirror }: ApiPod): void {
    const claims = this.#claims.get(uid) ?? new Map<string, Claim>();
    this.#claims.set(uid, claims.set(keyOf({ uid, namespace, name }), { uid, namespace, name, isMirror }));
    this.look(uid);
  }

  gone(pod: ApiPodIdentity): void {
    const key = keyOf(pod);
    this.#reported.delete(key);
    const claims = this.#claims.get(pod.uid);
    claims?.delete(key);
    if (claims?.size === 0) this.#claims.delete(pod.uid);
  }

  /** Compares the objects that have a uid with the pods of this node. Also called when a pod is added to this node. */
  look(uid: string): void {
    const pods = this.options.podsOf(uid);
    let isFirst = true;
    for (const [key, claim] of this.#claims.get(uid) ?? []) {
      const reason = pods.length === 0 ? duplicate(claim, isFirst) : foreign(claim, pods);
      isFirst = false;
      if (reason !== undefined && !this.#reported.has(key)) this.#report(key, claim, reason);
    }
  }

  #report(key: string, { uid, namespace, name }: Claim, reason: IgnoredPodReason): void {
    this.#reported.add(key);
    this.options.counters.ignoredPod(reason);
    this.options.log.warn(
      { namespace, pod: name, uid, reason },
      'pod object ignored: it claims the uid of another pod',
    );
  }
}

/**
 * Returns why an object with the uid of another one is ignored. Until one of them runs here, the pod is unknown. The
 * API server assigns each uid once, so only a mirror pod can be a false claim.
 */
const duplicate = ({ isMirror }: Claim, isFirst: boolean): IgnoredPodReason | undefined =>
  isMirror && !isFirst ? 'duplicate_uid' : undefined;

/** Returns why the object matches none of these pods; undefined if it matches one. */
function foreign(claim: Claim, pods: readonly NodePodNames[]): IgnoredPodReason | undefined {
  const reasons = pods.map((pod) => whyForeign(claim, pod, pod.isStatic));
  return reasons.includes(undefined) ? undefined : (reasons.find((reason) => reason === 'not_static') ?? reasons[0]);
}
