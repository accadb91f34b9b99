/** Assembles the daemon from the other folders, and starts and stops it. */
export { startDaemon } from './daemon.ts';
export { type ProcessEnd, endProcess, failedWith } from './process.ts';
