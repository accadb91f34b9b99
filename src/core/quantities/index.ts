/** Branded numbers for amounts and limits, Kubernetes quantities, and sizes as text. */
export * from './numbers.ts';
export * from './kubernetes.ts';
export * from './sizes.ts';
export * from './pressure.ts';
