import type { NodeParts } from '../prepare.ts';
import { debian } from './debian.ts';
import type { Kernel } from './kernel.ts';
import { uml } from './uml.ts';

export type { Kernel } from './kernel.ts';
export { channels, kernelLog, kernelLogTail, killKernel } from './kernel.ts';

export const kernelOf = ({ kernel }: NodeParts): Kernel => (kernel.name === 'uml' ? uml(kernel) : debian(kernel));
