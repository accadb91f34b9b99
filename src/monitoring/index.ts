/** Metrics, health checks and a status page over HTTP. Loaded only with --metrics-bind. */
export { type MonitoringOptions, createMonitoringServer } from './server.ts';
