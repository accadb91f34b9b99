import { once } from 'node:events';
import type { Server } from 'node:http';
import { type Config, type Log, messageOf } from '../core/index.ts';
import type { MonitoringOptions } from '../monitoring/index.ts';
import { listen } from '../server/index.ts';

/** The running metrics server, or none. */
export interface RunningMetrics {
  close(): Promise<void>;
}

/** Only root may connect. */
const SOCKET_MODE = 0o600;

/**
 * Serves metrics and health checks at `--metrics-bind`. Never rejects: a failure here must not stop the CRI. Loads
 * src/monitoring on demand, so that nodes without the flag spend no memory on it.
 */
export async function serveMetrics(
  { metricsBind: bind, metricsTokenFile: tokenFile }: Config,
  options: MonitoringOptions,
): Promise<RunningMetrics> {
  if (bind.kind === 'none') return { close: () => Promise.resolve() };
  const { log } = options;
  try {
    const { createMonitoringServer } = await import('../monitoring/index.ts');
    const monitoring = createMonitoringServer(options, {
      isTcp: bind.kind === 'tcp',
      ...(tokenFile !== '' && { tokenFile }),
    });
    try {
      const stop =
        bind.kind === 'unix'
          ? await atSocket(bind.path, monitoring.http, log)
          : await atPort(bind, monitoring.http, log);
      return {
        async close() {
          monitoring.close();
          await stop();
        },
      };
    } catch (error) {
      monitoring.close();
      throw error;
    }
  } catch (error) {
    log.error({ bind: addressOf(bind), error: messageOf(error) }, 'metrics are not served');
    return { close: () => Promise.resolve() };
  }
}

async function atSocket(path: string, http: Server, log: Log): Promise<() => Promise<void>> {
  const onConnection = (connection: unknown): void => void http.emit('connection', connection);
  const listener = await listen({ path, rights: { mode: SOCKET_MODE }, onConnection, log });
  log.info({ address: addressOf({ kind: 'unix', path }) }, 'metrics are served');
  return () => listener.close();
}

async function atPort(
  bind: Extract<Config['metricsBind'], { kind: 'tcp' }>,
  http: Server,
  log: Log,
): Promise<() => Promise<void>> {
  http.listen({ host: bind.host, port: bind.port });
  await once(http, 'listening');
  const bound = http.address();
  const port = typeof bound === 'object' && bound !== null ? bound.port : bind.port;
  log.info({ address: addressOf({ ...bind, port }) }, 'metrics are served');
  return () => Promise.resolve();
}

function addressOf(bind: Exclude<Config['metricsBind'], { kind: 'none' }>): string {
  if (bind.kind === 'unix') return `unix://${bind.path}`;
  return `http://${bind.host.includes(':') ? `[${bind.host}]` : bind.host}:${bind.port}`;
}
