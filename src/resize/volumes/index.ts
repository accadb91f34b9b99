/** The size policies of memory-backed volumes: where they come from, how they are stored, and warnings about sizes. */
export {
  isAlreadyAllocated,
  journalAllVolumes,
  journalVolumes,
  observeVolumes,
  setVolumeAnnotated,
  recordRemounts,
} from './volume-tracking.ts';
export type { VolumeTrackingParts } from './volume-tracking.ts';
export { VolumePolicies, assertHasVolumes, assertWithinSizeLimits } from './policies.ts';
export type { FollowSetting } from './policies.ts';
export { excessWarning, warnAboutExcess } from './warnings.ts';
