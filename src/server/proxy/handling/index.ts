/** Unary calls that the shim handles, served in the proxy without another HTTP/2 connection. */
export { RequestCollector, type RequestCollectorPorts } from './request-collector.ts';
export { Handling, type HandlingPorts } from './handling.ts';
