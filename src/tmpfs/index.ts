/**
 * Memory-backed volumes of pods: finds them in the mount table, measures and remounts them, and reads their annotations. No other
 * folder remounts.
 */
export type { KubeletPlace } from './folder.ts';
export { MemoryVolumes } from './memory-volumes.ts';
export type { PodVolumes } from './memory-volumes.ts';
export { chooseRemountMethod } from './remount.ts';
export type { RemountMethod } from './remount.ts';
export {
  VOLUME_ANNOTATION,
  isDnsLabel,
  isSameSize,
  parseVolumeAnnotation,
  policyAtFirstSight,
  readVolumeAnnotations,
  targetSize,
} from './sizes.ts';
export type { VolumePolicy } from './sizes.ts';
export { isPodUid, surveyVolumes, volumeMountPoint } from './volumes.ts';
export type { VolumeName } from './volumes.ts';
