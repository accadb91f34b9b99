/**
 * Memory-backed volumes of pods: finds them in the mount table, measures and remounts them, and reads their
 * annotations. No other folder remounts.
 */
export type { KubeletPlace } from './folder.ts';
export { MemoryVolumes, type PodVolumes } from './memory-volumes.ts';
export {
  fitsIn,
  isDnsLabel,
  isSameSize,
  parseVolumeAnnotation,
  policyAtFirstSight,
  readVolumeAnnotations,
  targetSize,
  VOLUME_ANNOTATION,
  type VolumePolicy,
} from './sizes.ts';
export { isPodUid } from './volumes.ts';
