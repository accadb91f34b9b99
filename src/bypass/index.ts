/** The bypass: systemd's socket proxy serves the CRI socket while the shim cannot. Moves its clients back. */
export { type DrainResult, drain } from './drain.ts';
