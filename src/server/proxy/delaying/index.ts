/** Requests that wait until the interceptor lets them through. */
export { Delayer } from './delayer.ts';
export type { DelayedStream, DelayerPorts } from './delayer.ts';
export { RequestDelay } from './request-delay.ts';
