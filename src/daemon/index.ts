/** Assembles the daemon from the other folders, and starts and stops it. */
export { startDaemon } from './daemon.ts';
export { endProcess, failedWith, type ProcessEnd } from './process.ts';
