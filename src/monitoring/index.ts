/** What the shim tells monitoring over HTTP: metrics, health. Loaded only with --metrics-bind. */
export { createMonitoringServer } from './server.ts';
export type { MonitoringParts, MonitoringServer } from './server.ts';
