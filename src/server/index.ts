/** The CRI server: its sockets, the HTTP/2 proxy, and the calls that the shim handles or amends. */
export { openResizeApi } from './api/resize-api.ts';
export { backendAt, CONNECTION_LIMIT, createClientConnections } from './client-connections.ts';
export { type Interceptors, interceptionOf } from './handlers/interceptors.ts';
export { createLocalServer } from './handlers/local-server.ts';
export { passThroughHandlers } from './handlers/runtime.ts';
export { createInterceptors, localHandlers } from './handlers/table.ts';
export { type Listener, type ListenOptions, listen, listenOnInherited } from './listener/listener.ts';
export { loadPeerOf, unknownPeer } from './listener/peer.ts';
export type { LocalHandlers } from './local-calls.ts';
export { refuseConnection, SHARED_LIMITS, serveConnection } from './proxy/serve.ts';
export { SharedBudget } from './proxy/shared-budget.ts';
export { proxyReport } from './proxy-report.ts';
export { tooManyConnections } from './unary/connection-room.ts';
