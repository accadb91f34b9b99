/** Metrics, health checks and a status page over HTTP. Loaded only with --metrics-bind. */
export { createMonitoringServer } from './server.ts';
export type { MonitoringParts, MonitoringServer } from './server.ts';
