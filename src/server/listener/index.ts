export { listenOnPassed } from './inherited.ts';
export { listen } from './listener.ts';
export type { Listener } from './listener.ts';
