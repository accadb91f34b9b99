import { Code, Reason, ShimError } from '../../core/errors/index.ts';
import { type PodDescription, isServiceError } from '../../runtime/index.ts';
import type { DescribePod } from './pod-view.ts';
import { type PodIdentity, type Registry, identityOf } from '../../sandbox/index.ts';
import { backendFailure } from '../model/index.ts';

/** How a caller names a pod. */
export type PodRef =
  /** May be cut to a unique prefix. */
  | { readonly by: 'sandbox_id'; readonly id: string }
  | { readonly by: 'uid'; readonly uid: string }
  | { readonly by: 'name'; readonly namespace: string; readonly name: string };

/** The pods of this node, as callers of the resize API name and see them. */
export interface PodDirectory {
  /** Throws UNKNOWN_POD, AMBIGUOUS_POD, INVALID_VALUE (with the field's path) or BACKEND_UNAVAILABLE. */
  find(ref: PodRef): Promise<PodIdentity>;
  /** As the backend has them now. Rejects with BACKEND_UNAVAILABLE. */
  list(): Promise<readonly PodIdentity[]>;
  readonly describe: DescribePod;
  /** The container's name in its pod; its id when it is not known. */
  readonly containerName: (sandboxId: string, containerId: string) => string;
}

export interface PodDirectoryParts {
  readonly registry: Pick<Registry, 'pod' | 'pods' | 'containersOf' | 'refresh'>;
  /** Whether a sandbox is ready: beside the sandbox that runs, a pod may have some that have ended. */
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
  const thatAreReady = async (pods: readonly PodDescription[]): Promise<readonly PodDescription[]> => {
    if (pods.length < 2) return pods;
    const ready = await Promise.all(pods.map(({ sandboxId }) => isReady(sandboxId)));
    return pods.filter((_, index) => ready[index]);
  };
  const matching = async (ref: PodRef): Promise<readonly PodDescription[]> => {
    switch (ref.by) {
      case 'sandbox_id':
        return byId(ref.id);
      case 'uid':
        return thatAreReady(registry.pods.filter(({ metadata }) => metadata.uid === ref.uid));
      case 'name':
        return thatAreReady(
          registry.pods.filter(({ metadata }) => metadata.namespace === ref.namespace && metadata.name === ref.name),
        );
    }
  };
  return {
    find: (ref) =>
      ofBackend(async () => {
        assertRef(ref);
        const known = await matching(ref);
        if (known.length > 0) return theOnly(known, ref);
        // Made past the shim, or while it was away.
        await registry.refresh();
        return theOnly(await matching(ref), ref);
      }),
    list: () =>
      ofBackend(async () => {
        await registry.refresh();
        return registry.pods.map(identityOf);
      }),
    describe: describePod,
    containerName: (sandboxId, containerId) =>
      registry.containersOf(sandboxId).find((known) => known.containerId === containerId)?.name ?? containerId,
  };
}

/** Errors of the backend under a reason of the shim's own. */
async function ofBackend<Result>(ask: () => Promise<Result>): Promise<Result> {
  try {
    return await ask();
  } catch (error) {
    throw isServiceError(error) ? backendFailure(error) : error;
  }
}

function theOnly(pods: readonly PodDescription[], ref: PodRef): PodIdentity {
  const [pod, ...more] = pods;
  const asked = textOf(ref);
  if (pod === undefined) {
    throw new ShimError(Code.NOT_FOUND, Reason.UNKNOWN_POD, `no pod on this node has ${ref.by} ${asked}`, { asked });
  }
  if (more.length === 0) return identityOf(pod);
  const found = pods.map(({ sandboxId }) => sandboxId).slice(0, 4);
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
      return `${ref.namespace}/${ref.name}`;
  }
}

/** Ids, uids and names are compared and passed to the backend, never made into a path; still, nothing odd goes further. */
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
