import { expect } from 'vitest';
import type { ReportedContainer } from '../support/cri/client.ts';
import type { RunningPod } from '../support/cri/pod.ts';
import type { MatrixContainer } from './cases.ts';

const RUNNING = 1;
const EXITED = 2;

/**
 * The pod's containers are those of its case as CRI sees them: an init container has ended well, the others run, and each was
 * started after the ones before it were, or had ended. CRI knows no sidecars: one is a container that was started before an
 * init container or before the first main one, and still runs.
 */
export async function assertStartedInOrder(
  { client, sandboxId }: RunningPod,
  containers: readonly MatrixContainer[],
): Promise<void> {
  const filter = { pod_sandbox_id: sandboxId };
  const listed = await client.call<{ containers: { id: string }[] }>('ListContainers', { filter });
  const found = await Promise.all(listed.containers.map(({ id }) => client.containerStatus(id)));
  found.sort((a, b) => a.started_at - b.started_at);
  const seen = found.map(({ metadata, state, exit_code }) => ({ name: metadata.name, state, exit_code }));
  const wanted = containers.map(({ name, role }) => ({
    name,
    state: role === 'init' ? EXITED : RUNNING,
    exit_code: 0,
  }));
  expect(seen, 'in the order of their start').toEqual(wanted);
  for (const [at, container] of found.slice(1).entries())
    expect(container.started_at, container.metadata.name).toBeGreaterThan(readyAt(found[at]!));
}

/** When kubelet goes on to the next container. */
const readyAt = ({ started_at, finished_at }: ReportedContainer): number => Math.max(started_at, finished_at);
