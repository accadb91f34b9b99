import type { DeclaredPod } from './declared-pod.ts';

/** Returns the pod as if this container ran, as the only one of its name. It counts, also if the one before it has ended well. */
export function withRunning(
  pod: DeclaredPod,
  { containerId, name }: { readonly containerId: string; readonly name: string },
): DeclaredPod {
  const running = { state: 'running', id: containerId, isUncounted: false } as const;
  return { ...pod, containers: pod.containers.map((one) => (one.name === name ? { ...one, ...running } : one)) };
}
