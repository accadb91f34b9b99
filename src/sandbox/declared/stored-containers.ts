import { type CpuShares, cpuShares } from '../../core/quantities/index.ts';
import type { ContainerDescription } from '../../runtime/index.ts';
import type { Registry } from '../registry.ts';
import { storedAmounts } from './amounts.ts';
import type { Amounts } from './declared-pod.ts';
import type { NewestContainer } from './newest-containers.ts';

/** What the runtime stores of a container. */
export interface StoredContainer {
  readonly limits: Amounts;
  readonly exitCode: number;
  /** Absent: not stored. */
  readonly shares?: CpuShares;
}

/** By container id. Containers that are removed meanwhile are left out. */
export type StoredContainers = ReadonlyMap<string, StoredContainer>;

/** Asks the backend for these containers. Rejects when the backend cannot be asked. */
export async function storedContainers(
  { registry }: { readonly registry: Pick<Registry, 'describeContainer'> },
  containers: readonly NewestContainer[],
): Promise<StoredContainers> {
  const described = await Promise.all(containers.map(({ id }) => registry.describeContainer(id)));
  return new Map(described.flatMap((one) => (one === undefined ? [] : [[one.containerId, storedContainer(one)]])));
}

function storedContainer({ resources, exitCode }: ContainerDescription): StoredContainer {
  const shares = resources?.cpu_shares ?? 0n;
  return {
    limits: storedAmounts(resources) ?? {},
    exitCode,
    ...(shares > 0n && { shares: cpuShares(Number(shares)) }),
  };
}
