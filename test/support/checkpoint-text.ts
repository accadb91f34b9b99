/** kubelet's state files in its own format (pkg/kubelet/allocation/state/checkpoint.go). */

export interface WrittenResources {
  readonly limits?: Readonly<Record<string, string>>;
  readonly requests?: Readonly<Record<string, string>>;
}

export interface WrittenPod {
  readonly ContainerResources: Readonly<Record<string, WrittenResources>>;
  readonly PodLevelResources?: WrittenResources | null;
  /** 1.37 and later, with the feature gate InPlacePodVerticalScalingMemoryBackedVolumes. */
  readonly EmptyDirVolumeLimits?: Readonly<Record<string, string | null>> | null;
}

/** Returns the text of one file: JSON in a string, and the checksum of that string. */
export function checkpointText(entries: Readonly<Record<string, WrittenPod>>): string {
  const pods = Object.entries(entries).map(([uid, pod]) => [uid, { PodLevelResources: null, ...pod }] as const);
  const data = JSON.stringify(pods.length === 0 ? {} : { entries: Object.fromEntries(pods) });
  return JSON.stringify({ data, checksum: checksumOf(data) });
}

/** Returns the 32-bit FNV-1a hash of Go's output for the text with its type (pkg/util/hash, DeepHashObject). */
export function checksumOf(data: string): number {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(`(string)${data}`)) hash = Math.imul(hash, 0x01000193) ^ byte;
  return hash >>> 0;
}

/** One container with a memory limit, as most tests need. */
export const withMemory = (limits: Readonly<Record<string, string>>): WrittenPod => ({
  ContainerResources: Object.fromEntries(
    Object.entries(limits).map(([name, memory]) => [name, { limits: { memory }, requests: { memory } }]),
  ),
});
