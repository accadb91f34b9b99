import { measureFirstStatus } from './first-status.ts';
import { measureGrowth } from './growth.ts';
import { measureLoad } from './load.ts';
import { measureMemory } from './memory.ts';
import type { WorkOptions } from './options.ts';
import { measurePackagedStart } from './packaged.ts';
import { measurePlan } from './plan.ts';
import { measureRecovery } from './recovery.ts';
import { measureRemounts } from './remount.ts';
import { measureResizes } from './resize-pod.ts';
import type { WorkResult } from './result.ts';
import { measureStorm } from './storm.ts';

export type { WorkResult } from './result.ts';

export interface Work {
  readonly name: string;
  /** Returns the work itself first, then its parts. Rejects if the result of the work is wrong. */
  readonly measure: (options: WorkOptions) => Promise<WorkResult[]>;
}

export const works: readonly Work[] = [
  { name: 'Plan for 10 containers', measure: measurePlan },
  { name: 'ResizePod of 3 containers', measure: measureResizes },
  { name: 'Remount of a volume', measure: measureRemounts },
  { name: 'Recovery of 1,000 pods', measure: measureRecovery },
  { name: 'First ContainerStatus of a container', measure: measureFirstStatus },
  { name: 'Packaged daemon, first answer', measure: measurePackagedStart },
  { name: 'Memory', measure: measureMemory },
  { name: 'Storm', measure: measureStorm },
  { name: 'Growth', measure: measureGrowth },
  { name: 'Load of a real kubelet', measure: measureLoad },
];
