import type { Amounts, DeclaredContainer } from '../pods/declared-pod.ts';
import type { LiveContainer, PodState } from '../pods/pod-state.ts';

/** How one resource is summed up for the pod limit. Numbers are in the unit of the pod's file; Infinity is no limit. */
export interface CountedResource {
  /** The limit of a running container. */
  readonly live: (container: LiveContainer) => number;
  /** The limit that a container or a pod declares. */
  readonly declared: (amounts: Amounts) => number;
  readonly overhead: number;
}

/** The sum of a pod's limits as kubelet computes it. */
export interface DeclaredSum {
  readonly sum: number;
  /** The number of containers in the sum. The limit of each may be rounded. */
  readonly count: number;
  /** The number of containers in the sum without a limit. */
  readonly unlimited: number;
}

/** The containers of a pod. */
type Counted = Pick<PodState, 'containers' | 'declared'>;

/**
 * How containers of unknown kind count. Determined once for a pod, from its present limit, and used for the sums before
 * and after a change.
 */
export interface Reading {
  /** The containers that count as ordinary init containers, by id. */
  readonly inits: ReadonlySet<string>;
  /** Those of `inits` that ended before all others and were removed from the runtime: no sidecar counts with them. */
  readonly first?: ReadonlySet<string> | undefined;
  /** The containers without a limit that do not make the pod unlimited, by id. */
  readonly ignored: ReadonlySet<string>;
}

/**
 * Determines how the containers of unknown kind count. kubelet computed `limit` from all containers of the pod.
 *
 * - Containers that may be ordinary init containers: kubelet runs these first, so they are the first ones in the order
 *   of creation. The number of containers counted as init containers is the smallest for which the sum fits `limit`, so
 *   that the sum is as large as possible ({@link readingsOf}).
 * - A container without a limit in a pod with a limit: if it were an app container, kubelet would have set no pod limit
 *   (unless the pod has a pod-level limit). It is most likely an ephemeral container, and does not count.
 *
 * @param limit the pod limit, with the tolerance for rounding
 */
export function readingOf(state: PodState, resource: CountedResource, limit: number): Reading {
  const ignored = new Set<string>();
  const { declared } = state;
  if (declared === undefined || limit === Infinity) return { inits: new Set(), ignored };
  if (declared.source !== 'spec') {
    for (const { id, kind, value } of membersOf(state, resource))
      if (value === Infinity && kind !== 'init') ignored.add(id);
  }
  const fitting = readingsOf(state, resource, ignored).find(
    (reading) => declaredSum(state, resource, reading).sum <= limit,
  );
  return fitting ?? { inits: new Set(), ignored };
}

/**
 * Returns each way to count the containers that may be ordinary init containers. The first way counts none of them as
 * init containers. Of the containers that the runtime has, each further way counts one more, in the order of creation.
 * Any of the absent containers may be init containers in an unknown order: they are created after the sidecars, or they
 * ended earlier and were removed.
 */
export function readingsOf(
  pod: Counted,
  resource: CountedResource,
  ignored: ReadonlySet<string> = new Set(),
): Reading[] {
  const candidates = membersOf(pod, resource).filter(({ mayBeInit }) => mayBeInit);
  const present = candidates.filter(({ isAbsent }) => !isAbsent).map(({ id }) => id);
  const absent = subsetsOf(candidates.filter(({ isAbsent }) => isAbsent).map(({ id }) => id));
  return absent.flatMap((ids) =>
    Array.from({ length: present.length + 1 }, (_, count) => new Set([...present.slice(0, count), ...ids])).flatMap(
      (inits): Reading[] =>
        ids.length === 0
          ? [{ inits, ignored }]
          : [
              { inits, ignored },
              { inits, first: new Set(ids), ignored },
            ],
    ),
  );
}

/** Maximum number of absent containers to count separately: the number of subsets doubles with each. */
const MOST_ABSENT = 4;

/** Returns the subsets, small ones first. */
function subsetsOf(ids: readonly string[]): (readonly string[])[] {
  if (ids.length > MOST_ABSENT) return [[], ids];
  const all = ids.reduce<string[][]>((sets, id) => [...sets, ...sets.map((set) => [...set, id])], [[]]);
  return all.sort((one, other) => one.length - other.length);
}

/**
 * KEP-1287: returns the sum of a pod's limits as kubelet computes the pod limit (pkg/kubelet/cm/helpers_linux.go,
 * ResourceConfigForPod, and k8s.io/component-helpers/resource, PodLimits): the pod-level limit. Otherwise the larger of
 * the sum of all app containers and sidecars, and the largest ordinary init container with the sidecars before it. The
 * overhead is added. Ephemeral containers do not count. Infinity (no limit) if an app container has no limit, or if an
 * init container or sidecar and all sidecars before it have none.
 */
export function declaredSum(
  state: Counted,
  resource: CountedResource,
  { inits, first, ignored }: Reading,
): DeclaredSum {
  const { overhead } = resource;
  const level = state.declared?.limits && resource.declared(state.declared.limits);
  if (level !== undefined && level !== Infinity) return { sum: level + overhead, count: 0, unlimited: 0 };
  const counted = membersOf(state, resource).filter(({ id, value }) => !(ignored.has(id) && value === Infinity));
  const members = inOrder(counted, { inits, first });
  let [running, largestInit, isLimited] = [0, 0, true];
  for (const { id, kind, value } of members) {
    const finite = value === Infinity ? 0 : value;
    const withPrevious = running + finite;
    const isInit = kind === 'init' || inits.has(id);
    // kubelet adds the sidecars before an init container or sidecar to it: there is no limit only if none of them has
    // one.
    if (value === Infinity && (isInit || kind === 'sidecar' ? withPrevious === 0 : true)) isLimited = false;
    if (isInit) largestInit = Math.max(largestInit, withPrevious);
    // Only sidecars are created before an init container. In a spec all init containers come first.
    else running = withPrevious;
  }
  const unlimited = members.filter(({ value }) => value === Infinity).length;
  return { sum: isLimited ? Math.max(running, largestInit) + overhead : Infinity, count: members.length, unlimited };
}

/**
 * Returns the containers in the order of their start. Those that ended first and were removed come first. Of the
 * containers that are not created yet, the init containers come before the app containers, whose order is irrelevant.
 */
function inOrder(members: readonly Member[], { inits, first }: Pick<Reading, 'inits' | 'first'>): readonly Member[] {
  const waits = ({ isAbsent, mayBeInit }: Member): boolean => isAbsent && mayBeInit;
  const rank = (one: Member): number => {
    if (first?.has(one.id) === true) return 0;
    if (!waits(one)) return 1;
    return inits.has(one.id) ? 2 : 3;
  };
  return members.some(waits) ? [...members].sort((one, other) => rank(one) - rank(other)) : members;
}

/** A container that counts in the sum. */
interface Member {
  /** The id of the container; its name if none was created. */
  readonly id: string;
  readonly kind: DeclaredContainer['kind'];
  readonly mayBeInit: boolean;
  /** The runtime has no container for it. */
  readonly isAbsent: boolean;
  readonly value: number;
}

function membersOf({ containers, declared }: Counted, resource: CountedResource): readonly Member[] {
  const running = new Map(containers.map((container) => [container.id, container]));
  const members = (declared?.containers ?? []).flatMap((one): Member[] => {
    const { id = one.name, kind, limits, mayBeInit = false } = one;
    const live = running.get(id);
    running.delete(id);
    if (kind === 'ephemeral' || one.isUncounted === true) return [];
    // A value that a source does not report cannot be counted.
    if (live === undefined && limits === undefined) return [];
    const isAbsent = one.id === undefined;
    return [{ id, kind, mayBeInit, isAbsent, value: live ? resource.live(live) : resource.declared(limits ?? {}) }];
  });
  const others = [...running.values()].map((live): Member => {
    return { id: live.id, kind: 'unknown', mayBeInit: false, isAbsent: false, value: resource.live(live) };
  });
  // An outdated spec lacks only new ephemeral containers, which have no limit: a pod gets no other containers later.
  const isNewEphemeral = ({ value }: Member): boolean => declared?.source === 'spec' && value === Infinity;
  return [...members, ...others.filter((one) => !isNewEphemeral(one))];
}
