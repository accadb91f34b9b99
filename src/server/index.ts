/** The CRI server: its sockets, the HTTP/2 proxy, and the calls that the shim handles or amends. */
export { CONNECTION_LIMIT, createClientConnections } from './client-connections.ts';
export {
  createInterceptors,
  createLocalServer,
  interceptionOf,
  localHandlers,
  passThroughHandlers,
} from './handlers/index.ts';
export type { Interceptors, LocalHandlers } from './handlers/index.ts';
export { listen, listenOnInherited, loadPeerOf, unknownPeer } from './listener/index.ts';
export type { ListenOptions, Listener } from './listener/index.ts';
export { proxyReport } from './proxy-report.ts';
export { LIMITS, SHARED_LIMITS, SharedBudget, refuseConnection, serveConnection } from './proxy/index.ts';
