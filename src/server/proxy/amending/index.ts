/** Responses that are held, changed by an interceptor, and sent on. */
export { Amender } from './amender.ts';
export type { AmendedStream, AmenderPorts } from './amender.ts';
export { Amendment } from './amendment.ts';
