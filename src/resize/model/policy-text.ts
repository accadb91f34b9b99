import type { VolumePolicy } from '../../tmpfs/index.ts';
import { formatMemory } from './amounts.ts';

/** Returns a volume's policy as its annotation writes it. `follow, at most 64Mi` comes from the pod's spec, not from an annotation. */
export function policyText(policy: VolumePolicy): string {
  switch (policy.kind) {
    case 'absolute':
      return formatMemory(policy.size);
    case 'share':
      return `${policy.hundredths / 100}%`;
    case 'container-share':
      return `${policy.hundredths / 100}%/${policy.container}`;
    case 'follow':
      return policy.atMost === undefined ? 'follow' : `follow, at most ${formatMemory(policy.atMost)}`;
    case 'fixed':
      return 'fixed';
  }
}
