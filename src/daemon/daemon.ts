import {
  BypassWatch,
  type Config,
  type Counters,
  countersFields,
  crashPoint,
  createCounters,
  createLog,
  type Log,
  loggableError,
  type Supervisor,
  steadyNow,
  superviseBy,
  takeBypassFiles,
  takePassedSockets,
  takeSupervisorVariables,
  version,
  writeBypassTarget,
} from '../core/index.ts';
import type { MonitoringOptions } from '../monitoring/index.ts';
import { type CriSocket, createCriSocket } from './cri-socket.ts';
import { EndpointDrift } from './endpoint-drift.ts';
import { type RunningMetrics, serveMetrics } from './metrics.ts';
import { endProcessNow, failedWith, type StopSignal, stopSignal, useLittleMemory } from './process.ts';
import { createResizing, noResizing, type Outside, type Resizing } from './resizing.ts';

/** The running daemon. */
export interface Daemon {
  /** Resolves with the first signal to stop. Rejects if the CRI socket fails. */
  stopSignal(): Promise<StopSignal>;
  /** Ends running calls within `--shutdown-timeout`, and closes everything. */
  stop(signal: StopSignal): Promise<void>;
}

/** The parts that {@link startDaemon} has assembled. */
interface Assembly {
  readonly config: Config;
  readonly log: Log;
  readonly counters: ReturnType<typeof createCounters>;
  readonly supervisor: Supervisor;
  readonly resizing: Resizing;
  readonly cri: CriSocket;
  readonly metrics: RunningMetrics;
  readonly bypass: BypassWatch;
  readonly drift: EndpointDrift;
}

/** Problems of the configuration in the log. */
const MOST_LOGGED = 20;

/** Time to close everything after the calls, in ms. Reported to systemd on top of --shutdown-timeout. */
const CLOSING_MS = 15_000;

/**
 * Assembles the daemon and serves the CRI. Rejects if the CRI socket cannot be opened.
 * @param problems of the configuration file: with any, the shim forwards every call unchanged and says so
 */
export async function startDaemon(config: Config, problems: readonly string[] = []): Promise<Daemon> {
  const counters = createCounters();
  const log = createLog({ level: config.logLevel, dropped: (reason) => counters.logDropped(reason) });
  const stopped = stopSignal();
  exitOnUncaughtException(log);

  const passed = takePassedSockets(process.env, process.pid);
  const variables = takeSupervisorVariables(process.env, process.pid);
  const supervisor = superviseBy(variables, { log, counters });
  const { target, state } = takeBypassFiles(process.env);
  await supervisor.check();
  const connections = (): number => cri.connections;
  const outside = { passed: passed.resize, connections, endpointCheck: () => drift.check() };
  const resizing: Resizing = resizingOf(config, log, counters, { ...outside, problems });
  const cri: CriSocket = createCriSocket(config, resizing, { passed: passed.cri, log, counters });
  const bypass = new BypassWatch({ log, state, onEnd: (times) => resizing.bypassEnded(times) });
  const drift: EndpointDrift = new EndpointDrift(config, { cri, bypass, resizing, log });
  const { failure } = await cri.listen();
  logServing(log, { listen: cri.path, passed: Object.keys(passed), config, problems });
  crashPoint('serving');
  const metrics = await serveMetrics(config, {
    ...{ version, log, connections },
    ...monitored({ counters, resizing, bypass, drift }),
  });
  await resizing.begin();
  await useLittleMemory();
  await writeBypassTarget(target, config.containerRuntimeEndpoint, log);
  await supervisor.ready(statusText(cri.path, resizing.passThrough));
  if (variables !== undefined) void bypass.run();
  drift.begin();

  return {
    async stopSignal() {
      const signal = await Promise.race([stopped, failure]);
      if (signal instanceof Error) throw signal;
      return signal;
    },
    stop: (signal) => stop({ config, log, counters, supervisor, resizing, cri, metrics, bypass, drift }, signal),
  };
}

/** The readings for metrics, health checks and the status page. */
const monitored = ({
  counters,
  resizing,
  bypass,
  drift,
}: Pick<Assembly, 'counters' | 'resizing' | 'bypass' | 'drift'>): Omit<
  MonitoringOptions,
  'version' | 'log' | 'connections'
> => ({
  counted: counters.families,
  refused: (budget) => counters.refused(budget),
  readiness: () => resizing.readiness(),
  node: () => resizing.readings(),
  overview: (signal) => resizing.overview(signal),
  watchResizes: (onResize) => resizing.watchResizes(onResize),
  bypass: () => bypass.times,
  endpoint: () => drift.state,
});

/** Returns the text for `systemctl status`. Omits readiness, which would wait for the journal, whose disk may hang. */
const statusText = (path: string, passThrough: string | undefined): string =>
  passThrough === undefined ? `serving ${path}` : `serving ${path}, ${passThrough}`;

interface Serving {
  readonly listen: string;
  readonly passed: readonly string[];
  readonly config: Config;
  readonly problems: readonly string[];
}

function logServing(log: Log, { listen, passed, config, problems }: Serving): void {
  const { containerRuntimeEndpoint: backend, intercept } = config;
  log.info({ version, listen, passed, backend, intercept }, 'serving');
  if (problems.length > 0)
    log.error({ problems: problems.slice(0, MOST_LOGGED) }, 'configuration invalid: every call is forwarded unchanged');
}

function resizingOf(config: Config, log: Log, counters: Counters, outside: Outside): Resizing {
  const isResizing = config.intercept && outside.problems.length === 0;
  return isResizing ? createResizing(config, log, counters, outside) : noResizing(config, log, outside);
}

async function stop(
  { config, log, counters, supervisor, resizing, cri, metrics, bypass, drift }: Assembly,
  signal: StopSignal,
): Promise<void> {
  const { shutdownTimeout } = config;
  log.info({ signal, connections: cri.connections }, 'stopping');
  // One deadline for calls and resizes together: the systemd unit allows no more.
  const deadline = steadyNow() + shutdownTimeout;
  bypass.close();
  drift.close();
  await cri.closeListener();
  await supervisor.stopping(shutdownTimeout + CLOSING_MS, 'waiting for running calls');
  resizing.letCallsThrough();
  const cut = await cri.shutdown(shutdownTimeout);
  await resizing.close(Math.max(0, deadline - steadyNow()));
  // Last, so that metrics are available during the shutdown.
  await metrics.close();
  if (cut > 0) log.warn({ cut, timeoutMs: shutdownTimeout }, 'calls were cut off at the shutdown timeout');
  log.info(countersFields(counters.snapshot()), 'stopped');
  supervisor.close();
}

/** Logs an uncaught exception and exits: the state of the process is unknown after it. */
function exitOnUncaughtException(log: Log): void {
  process.on('uncaughtException', (error) => {
    log.error(loggableError(error), 'uncaught exception');
    endProcessNow(failedWith(1));
  });
}
