import { MiB } from '../../../src/core/quantities/sizes.ts';
import { bytes, microseconds } from '../../../src/core/quantities/numbers.ts';
import { type Step, describeStep } from '../../../src/sandbox/plan/step.ts';
import type { PodState } from '../../../src/sandbox/pods/pod-state.ts';
import { NO_OVERHEAD, PERIOD } from './pods.ts';

/** Pods for tests of single plans. Memory is in MiB, CPU in microseconds of a period of 100 ms. */

export const container = (id: string, mebibytes: number | 'max', quota: number | 'max' = 'max') => ({
  id,
  memory: mebibytes === 'max' ? ('max' as const) : bytes(mebibytes * MiB),
  cpu: { quota: quota === 'max' ? ('max' as const) : microseconds(quota), period: PERIOD },
});

export const pod = (memory: number | 'max', quota: number | 'max', containers: PodState['containers']): PodState => ({
  ...container('', memory, quota),
  weight: undefined,
  overhead: NO_OVERHEAD,
  containers,
  volumes: [],
});

export const cpu = (quota: number | 'max', period = 100_000) => ({
  quota: quota === 'max' ? quota : microseconds(quota),
  period: microseconds(period),
});

export const texts = (steps: readonly Step[]): string[] => steps.map(describeStep);
