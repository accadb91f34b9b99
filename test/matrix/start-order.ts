import { expect } from 'vitest';
import type { ReportedContainer } from '../support/cri/client.ts';
import type { RunningPod } from '../support/cri/pod.ts';
import type { MatrixContainer } from './cases.ts';

const RUNNING = 1;
const EXITED = 2;

/**
 * Expects that the pod's containers match those of its case: an init container has ended with code 0, the others run,
 * and each was started after the previous one had started, or had ended. CRI does not know sidecars: a sidecar is a
 * container that was started before an init container or the first main container, and still runs.
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

/** Returns the time at which kubelet continues with the next container. */
const readyAt = ({ started_at, finished_at }: ReportedContainer): number => Math.max(started_at, finished_at);
