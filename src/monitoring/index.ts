/** Metrics, health checks and a status page over HTTP. Loaded only with --metrics-bind. */
export { createMonitoringServer, type MonitoringOptions } from './server.ts';
