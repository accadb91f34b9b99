import type { VolumePolicy } from '../../tmpfs/index.ts';
import { formatMemory } from './amounts.ts';

/** Returns a volume's policy as its annotation writes it. */
export function policyText(policy: VolumePolicy): string {
  switch (policy.kind) {
    case 'absolute':
      return formatMemory(policy.size);
    case 'share':
      return `${policy.hundredths / 100}%`;
    case 'container-share':
      return `${policy.hundredths / 100}%/${policy.container}`;
    case 'follow':
    case 'fixed':
      return policy.kind;
  }
}
