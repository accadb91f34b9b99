import { type ContainerDescription, ContainerState } from '../runtime/index.ts';

/**
 * Whether a container is an init container that has done its work: it has nothing to be resized, now or later. CRI does not tell
 * which containers are init containers. What tells is the order in which kubelet makes them: while one that has to end runs, it
 * makes no other, and goes on when it has ended well. (A first container that ends well before kubelet has made the second looks
 * the same. As little comes of resizing it: kubelet starts a new one in its place, with values of its own.)
 *
 * @param all the pod's containers, this one among them
 */
export function isCompletedInitContainer(
  container: ContainerDescription,
  all: readonly ContainerDescription[],
): boolean {
  if (container.state !== ContainerState.EXITED || container.exitCode !== 0 || container.finishedAt === 0n)
    return false;
  const others = all.filter(({ name }) => name !== container.name);
  const madeMeanwhile = others.some(
    ({ createdAt }) => createdAt > container.createdAt && createdAt < container.finishedAt,
  );
  return !madeMeanwhile && others.some(({ createdAt }) => createdAt >= container.finishedAt);
}
