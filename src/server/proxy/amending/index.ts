/** Responses that are held, changed by an interceptor, and sent on. */
export { Amender } from './amender.ts';
export type { AmendedStream, AmenderPorts } from './amender.ts';
export { Amendment } from './amendment.ts';
export { MessageAmender } from './message-amender.ts';
export type { MessageAmenderPorts, MessageStream } from './message-amender.ts';
export { MessageAmendment } from './message-amendment.ts';
export { MessageCollector } from './message-collector.ts';
export { Results } from './results.ts';
