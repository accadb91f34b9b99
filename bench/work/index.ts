import { measurePackagedMemory, measurePackagedStart } from './packaged.ts';
import { measurePlan } from './plan.ts';
import { measureRecovery } from './recovery.ts';
import { measureRemounts } from './remount.ts';
import { measureResizes } from './resize-pod.ts';
import type { WorkResult } from './result.ts';
import type { WorkOptions } from './options.ts';

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
  { name: 'Recovery of 250 pods', measure: measureRecovery },
  { name: 'Packaged daemon, first answer', measure: measurePackagedStart },
  { name: 'Packaged daemon, memory when idle', measure: measurePackagedMemory },
];
