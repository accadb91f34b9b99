/** Limits of HTTP servers whose clients are not trusted. */
export { limitConnections, oneRequestEach } from './connections.ts';
export type { ConnectionLimits } from './connections.ts';
