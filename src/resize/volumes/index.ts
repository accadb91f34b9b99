export { isAsked, keepAllVolumes, keepVolumes, meetVolumes, noteAnnotation, remountsEnded } from './known-volumes.ts';
export type { KnownVolumesParts } from './known-volumes.ts';
export { VolumePolicies, assertHasVolumes } from './policies.ts';
export { excessOf, warnOfExcess } from './warnings.ts';
