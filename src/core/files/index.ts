/** Files that have to survive a power cut. */
export { syncFile, syncFolder } from './sync.ts';
