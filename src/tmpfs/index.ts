/**
 * Memory-backed volumes of pods: finding them among the mounts, their size and use, a new size, and what their annotations
 * ask for. Nothing else in this project remounts.
 */
export type { KubeletPlace, VolumeSize } from './folder.ts';
export { MemoryVolumes } from './memory-volumes.ts';
export type { Remounted, VolumeReader, VolumeResizer } from './memory-volumes.ts';
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
export type { AnnotatedVolumes, VolumePolicy } from './sizes.ts';
export { surveyVolumes, volumeMountPoint } from './volumes.ts';
export type { RefusedVolume, Volume, VolumeName, VolumeSurvey } from './volumes.ts';
