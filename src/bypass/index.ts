/** The bypass: systemd's socket proxy serves the CRI socket while the shim cannot. Moves its clients back to the shim. */
export { drain } from './drain.ts';
export type { DrainResult } from './drain.ts';
