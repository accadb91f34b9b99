/** How the process begins to stop, and how it ends. */
export { type ProcessEnd, endProcess, endProcessNow, failedWith } from './process-end.ts';
export { type StopSignal, stopSignal } from './stop-signal.ts';
