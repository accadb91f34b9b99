import { Code, Reason, ShimError, isServiceError } from '../../core/errors/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { DescribePod } from './pod-view.ts';
import { type PodIdentity, type Registry, identityOf, fullName } from '../../sandbox/index.ts';
import { backendFailure } from '../model/index.ts';

/** A caller's reference to a pod. */
export type PodRef =
  /** A sandbox id, or a unique prefix of one. */
  | { readonly by: 'sandbox_id'; readonly id: string }
  | { readonly by: 'uid'; readonly uid: string }
  | { readonly by: 'name'; readonly namespace: string; readonly name: string };

/** Finds and describes the pods of this node for callers of the resize API. */
export interface PodDirectory {
  /** Finds a pod. Rejects with UNKNOWN_POD, AMBIGUOUS_POD, INVALID_VALUE (with the field's path) or BACKEND_UNAVAILABLE. */
  find(ref: PodRef): Promise<PodIdentity>;
  /** Returns the pods that the backend lists now, by namespace, name and sandbox id. Rejects with BACKEND_UNAVAILABLE. */
  list(): Promise<readonly PodIdentity[]>;
  readonly describe: DescribePod;
  /** Returns the container's name in its pod; its id if the name is unknown. */
  readonly containerName: (sandboxId: string, containerId: string) => string;
}

export interface PodDirectoryParts {
  readonly registry: Pick<Registry, 'pod' | 'pods' | 'containersOf' | 'refresh'>;
  /** Returns whether a sandbox is ready: a pod may have ended sandboxes in addition to the running one. */
  readonly isReady: (sandboxId: string) => Promise<boolean>;
  readonly describePod: DescribePod;
}

export function podDirectory({ registry, isReady, describePod }: PodDirectoryParts): PodDirectory {
  const byId = async (id: string): Promise<PodDescription[]> => {
    const known = registry.pods.filter(({ sandboxId }) => sandboxId === id);
    if (known.length > 0) return known;
    const matching = registry.pods.filter(({ sandboxId }) => sandboxId.startsWith(id));
    if (matching.length > 0) return matching;
    const asked = await registry.pod(id);
    return asked === undefined ? [] : [asked];
  };
  const readyOnes = async (pods: readonly PodDescription[]): Promise<readonly PodDescription[]> => {
    if (pods.length < 2) return pods;
    const ready = await Promise.all(pods.map(({ sandboxId }) => isReady(sandboxId)));
    return pods.filter((_, index) => ready[index]);
  };
  const matching = async (ref: PodRef): Promise<readonly PodDescription[]> => {
    switch (ref.by) {
      case 'sandbox_id':
        return byId(ref.id);
      case 'uid':
        return readyOnes(registry.pods.filter(({ metadata }) => metadata.uid === ref.uid));
      case 'name':
        return readyOnes(
          registry.pods.filter(({ metadata }) => metadata.namespace === ref.namespace && metadata.name === ref.name),
        );
    }
  };
  return {
    find: (ref) =>
      withBackend(async () => {
        assertRef(ref);
        const known = await matching(ref);
        if (known.length > 0) return singleMatch(known, ref);
        // The pod may have been created without the shim, or while it was not running.
        await registry.refresh();
        return singleMatch(await matching(ref), ref);
      }),
    list: () =>
      withBackend(async () => {
        await registry.refresh();
        return registry.pods.map(identityOf).toSorted(byName);
      }),
    describe: (sandboxId) => withBackend(() => describePod(sandboxId)),
    containerName: (sandboxId, containerId) =>
      registry.containersOf(sandboxId).find((known) => known.containerId === containerId)?.name ?? containerId,
  };
}

const orderOf = ({ namespace, name, sandboxId }: PodIdentity): string => [namespace, name, sandboxId].join('\0');
const byName = (one: PodIdentity, other: PodIdentity): number => (orderOf(one) < orderOf(other) ? -1 : 1);

/** Runs calls to the backend, and maps their errors to a ShimError. */
async function withBackend<Result>(call: () => Promise<Result>): Promise<Result> {
  try {
    return await call();
  } catch (error) {
    throw isServiceError(error) ? backendFailure(error) : error;
  }
}

function singleMatch(pods: readonly PodDescription[], ref: PodRef): PodIdentity {
  const [pod, ...more] = pods;
  const asked = textOf(ref);
  if (pod === undefined) {
    throw new ShimError(Code.NOT_FOUND, Reason.UNKNOWN_POD, `no pod on this node has ${ref.by} ${asked}`, { asked });
  }
  if (more.length === 0) return identityOf(pod);
  const found = pods
    .map(({ sandboxId }) => sandboxId)
    .toSorted()
    .slice(0, 4);
  throw new ShimError(
    Code.FAILED_PRECONDITION,
    Reason.AMBIGUOUS_POD,
    `${ref.by} ${asked} matches ${pods.length} sandboxes: ${found.join(', ')}`,
    { asked, found: found.join(', ') },
  );
}

function textOf(ref: PodRef): string {
  switch (ref.by) {
    case 'sandbox_id':
      return ref.id;
    case 'uid':
      return ref.uid;
    case 'name':
      return fullName(ref);
  }
}

/** Throws INVALID_VALUE for unusual characters. Ids, uids and names never become paths, but they do go to the backend. */
function assertRef(ref: PodRef): void {
  const parts: [string, string][] =
    ref.by === 'name'
      ? [
          ['pod.name.namespace', ref.namespace],
          ['pod.name.name', ref.name],
        ]
      : [[`pod.${ref.by}`, textOf(ref)]];
  for (const [field, text] of parts) {
    if (/^[0-9A-Za-z][0-9A-Za-z_.-]{0,252}$/.test(text)) continue;
    const asked = text.slice(0, 64);
    throw new ShimError(
      Code.INVALID_ARGUMENT,
      Reason.INVALID_VALUE,
      `${field}: ${JSON.stringify(asked)}: expected 1 to 253 letters, digits, "-", "_" and "."`,
      { field, asked },
    );
  }
}
