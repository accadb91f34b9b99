import { type ContainerDescription, ContainerState } from '../runtime/index.ts';

/**
 * Whether a container is a completed init container, which cannot be resized (KEP-1287). CRI does not say which containers are init
 * containers, but kubelet's order of creation shows it: kubelet creates no other container while an init container runs, and
 * continues after it has succeeded. An app container that succeeds before kubelet creates the next one looks the same; resizing it
 * has no effect either, since kubelet replaces it by a new one.
 *
 * @param all the pod's containers, including this one
 */
export function isCompletedInitContainer(
  container: ContainerDescription,
  all: readonly ContainerDescription[],
): boolean {
  if (container.state !== ContainerState.EXITED || container.exitCode !== 0 || container.finishedAt === 0n)
    return false;
  const others = all.filter(({ name }) => name !== container.name);
  const createdMeanwhile = others.some(
    ({ createdAt }) => createdAt > container.createdAt && createdAt < container.finishedAt,
  );
  return !createdMeanwhile && others.some(({ createdAt }) => createdAt >= container.finishedAt);
}
