import type { Amounts, DeclaredContainer } from '../pods/declared-pod.ts';
import type { LiveContainer, PodState } from '../pods/pod-state.ts';

/** How one resource counts in the limit of a pod. Numbers are in the unit of the pod's file; Infinity is no limit. */
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
  /** The number of containers in it: each limit may be rounded. */
  readonly count: number;
  /** The number of containers in it that have no limit. */
  readonly unlimited: number;
}

/** The containers of a pod. */
type Counted = Pick<PodState, 'containers' | 'declared'>;

/**
 * How the containers count whose kind no source reports. It is found out once for a pod, from its present limit, and
 * holds for the sums before and after a change.
 */
export interface Reading {
  /** The containers that count as ordinary init containers, by id. */
  readonly inits: ReadonlySet<string>;
  /** Those of `inits` that ended before all others and were removed from the runtime: no sidecar counts with them. */
  readonly first?: ReadonlySet<string> | undefined;
  /** The containers without a limit that do not take the pod limit away, by id. */
  readonly ignored: ReadonlySet<string>;
}

/**
 * Finds out how the containers of a pod count whose kind no source reports. kubelet made `limit` from all of them.
 *
 * - Containers that may be ordinary init containers: kubelet runs these first, so they are the first ones in the order
 *   of creation. As few as possible count as init containers so that the sum fits `limit`: the sum is then as large as
 *   it can be ({@link readingsOf}).
 * - A container without a limit, in a pod with one: for an app container kubelet would have set none (unless the pod
 *   has a pod-level limit). It is most likely an ephemeral container. Its limit is not counted.
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
 * Returns each way to count the containers that may be ordinary init containers. The first one counts none as such. Of
 * those that the runtime has, each other way counts one more, in the order of creation. Those that it has not wait to
 * be created after the sidecars, or they ended before and were removed: any of them may be init containers, and their
 * order is not known.
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

/** More absent containers than this count all alike: the number of subsets doubles with each. */
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
 * the sum of all app containers and sidecars, and the largest ordinary init container with the sidecars before it. In
 * addition the overhead. Ephemeral containers do not count. No limit (Infinity) when an app container has none, or an
 * init container or sidecar together with the sidecars before it.
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
    // kubelet passes an init container or sidecar together with the sidecars before it: only if all have no limit there
    // is none.
    if (value === Infinity && (isInit || kind === 'sidecar' ? withPrevious === 0 : true)) isLimited = false;
    if (isInit) largestInit = Math.max(largestInit, withPrevious);
    // Only sidecars are created before an init container. In a spec all init containers come first.
    else running = withPrevious;
  }
  const unlimited = members.filter(({ value }) => value === Infinity).length;
  return { sum: isLimited ? Math.max(running, largestInit) + overhead : Infinity, count: members.length, unlimited };
}

/**
 * Returns the containers in the order of their start. Those that ended first and were removed come first. Of those that
 * wait to be created, the init containers come before the app containers, which have no order in the sum.
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
  /** The runtime has no container of it. */
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
  // A spec that is behind lists all containers except new ephemeral ones, which have no limit: a pod gets no others
  // later.
  const isNewEphemeral = ({ value }: Member): boolean => declared?.source === 'spec' && value === Infinity;
  return [...members, ...others.filter((one) => !isNewEphemeral(one))];
}
