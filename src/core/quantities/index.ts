export * from './numbers.ts';
export * from './kubernetes.ts';
