import { exactMilliCpu } from '../../kubelet/index.ts';
import type { LinuxContainerResources } from '../../runtime/index.ts';
import { type EffectiveLimits, storedLimits } from '../limits/index.ts';
import type { Amounts } from './declared-pod.ts';

/** Whether nothing is declared. */
export const isEmpty = ({ memory, milliCpu }: Amounts): boolean => memory === undefined && milliCpu === undefined;

/** Returns the limits that the runtime stores for a container. Undefined when it stores none, or an invalid value. */
export function storedAmounts(resources: LinuxContainerResources | undefined): Amounts | undefined {
  const limits = storedLimits(resources);
  return limits && amountsOf(limits);
}

/** Returns limits as Kubernetes declares them: CPU in thousandths, rounded up. */
export function amountsOf({ memory, cpu }: EffectiveLimits): Amounts {
  return {
    ...(memory !== 'max' && { memory }),
    ...(cpu.quota !== 'max' && { milliCpu: Math.ceil(exactMilliCpu(cpu.quota, cpu.period)) }),
  };
}
