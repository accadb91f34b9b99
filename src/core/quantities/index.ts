/** Branded numbers for amounts and limits, and Kubernetes quantities. */
export * from './numbers.ts';
export * from './kubernetes.ts';
