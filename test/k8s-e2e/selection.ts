/** Which of Kubernetes' specs run. A regular expression matches the full name of a spec (Go syntax). */

export const groupNames = [
  'resize',
  'pod-level-resize',
  'memory-volumes',
  'lifecycle',
  'probes',
  'sidecars',
  'exec',
  'logs',
] as const;
export type GroupName = (typeof groupNames)[number];

export const groups: ReadonlyMap<GroupName, string> = new Map([
  ['resize', String.raw`\[sig-node\] (\[Serial\] )?Pod InPlace Resize`],
  ['pod-level-resize', String.raw`\[sig-node\] (PLR Pod InPlace Resize|Pod Level Resources)`],
  ['memory-volumes', String.raw`\[sig-storage\] EmptyDir volumes .*(tmpfs|[Mm]emory|shared volumes)`],
  ['lifecycle', 'Container Lifecycle Hook|Lifecycle Sleep Hook|sleep action zero value|PreStop'],
  ['probes', 'Probing container|Probing restartable init container'],
  ['sidecars', String.raw`\[sig-node\] (InitContainer|.*\[FeatureGate:SidecarContainers\])`],
  ['exec', 'remote command execution|Ephemeral Containers|PrivilegedPod|KubeletManagedEtcHosts'],
  ['logs', 'retrieving logs|specific log stream|busybox command|terminated container'],
]);

/** Returns one expression for these groups. */
export function focusOf(names: readonly GroupName[]): string {
  return names.map((name) => `(${groups.get(name) ?? ''})`).join('|');
}

/** If a smaller share of the specs passes directly, the run says too little about the shim. */
export const leastShare = 0.75;

/**
 * Specs that pass directly and may fail through the shim, with the reason. docs/compatibility.md lists them too. All
 * other differences fail the suite `k8s-e2e`.
 */
export const accepted: ReadonlyMap<string, string> = new Map();
