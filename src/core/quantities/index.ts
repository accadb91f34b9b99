/** Branded numbers for amounts and limits, Kubernetes quantities, sizes as text, and the kernel's page size. */
export * from './numbers.ts';
export * from './kubernetes.ts';
export { PAGE_SIZE } from './page-size.ts';
export * from './sizes.ts';
export * from './pressure.ts';
