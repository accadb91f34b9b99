/** What amended responses say of a container's resources: the kernel's values. */
export { kernelChanges } from './kernel-changes.ts';
export type { KernelChangesParts } from './kernel-changes.ts';
export { withKernelValues } from './kernel-values.ts';
