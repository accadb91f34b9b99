#!/usr/bin/env node
import type { Socket } from 'node:net';
import { type Config, ConfigError, loadConfig, version } from './config/index.ts';
import { crashPoint } from './core/crash-points/index.ts';
import { messageOf } from './core/errors/index.ts';
import { type Log, countersFields, createCounters, createLog, oncePerKey } from './observe/index.ts';
import { superviseBy, takePassedSockets, takeSupervisorVariables } from './systemd/index.ts';
import {
  createResizing,
  holdLittleMemory,
  neighboursOf,
  noResizing,
  serveMetrics,
  stopSignal,
} from './daemon/index.ts';
import {
  type Listener,
  createLocalServer,
  interceptionOf,
  listen,
  listenOnInherited,
  openFrontDoor,
  serveConnection,
  proxyReport,
} from './server/index.ts';
import { loggableError } from './grpc/index.ts';

const Exit = { done: 0, failed: 1, usage: 2 } as const;
/** Beyond --shutdown-timeout: what closing takes at most once nothing is waited for. */
const CLOSING_MS = 15_000;

// Not awaited here: the script of the single executable (src/executable.ts) has no await at its top.
start().then(
  () => process.exit(Exit.done),
  (error: unknown) => process.exit(complain(error)),
);

async function start(): Promise<void> {
  const invocation = await loadConfig(process.argv.slice(2));
  if (invocation.ask === 'print') process.stdout.write(invocation.text);
  else await run(invocation.config);
}

/** From the settings to the end of the last call. */
async function run(config: Config): Promise<void> {
  const log = createLog({ level: config.logLevel });
  const counters = createCounters();
  const stopped = stopSignal();
  dieLoudly(log);

  const passed = takePassedSockets(process.env, process.pid);
  const supervisor = superviseBy(takeSupervisorVariables(process.env, process.pid), { log, counters });

  const sockets = { passed: passed.resize, connections: () => frontDoor.connections };
  const resizing = config.intercept ? createResizing(config, log, counters, sockets) : noResizing(passed.resize);
  const local = createLocalServer(resizing.handlers, { log, counters });
  const isFirst = oncePerKey();
  const observer = proxyReport({ log, counters, logPassedCalls: config.logPassedCalls, isFirst });
  const frontDoor = openFrontDoor({
    serve: (client, options) => serveConnection(client, { ...options, observer }),
    backendPath: config.containerRuntimeEndpoint,
    connectLocal: () => local.connect(),
    interception: interceptionOf(resizing.interceptors, {
      log,
      counters,
      debug: config.logLevel === 'debug' || config.logLevel === 'trace',
    }),
    onBackend: () => listener.mirrorBackend(),
  });
  const onConnection = (client: Socket): void => frontDoor.accept(client);
  const listener: Listener =
    passed.cri === undefined
      ? await listen({
          path: config.listen,
          rights: { like: config.containerRuntimeEndpoint },
          neighbours: neighboursOf(config),
          onConnection,
          log,
        })
      : await listenOnInherited({ ...passed.cri, onConnection });
  const path = passed.cri?.path ?? config.listen;
  log.info(
    {
      ...{ version, listen: path, passed: Object.keys(passed) },
      ...{ backend: config.containerRuntimeEndpoint, intercept: config.intercept },
    },
    'serving',
  );
  crashPoint('serving');
  const metrics = await serveMetrics(config, {
    ...{ version, counted: counters.families, log },
    readiness: () => resizing.readiness(),
    node: () => resizing.readings(),
    overview: () => resizing.overview(),
    connections: () => frontDoor.connections,
  });
  await resizing.begin();
  holdLittleMemory();
  await supervisor.ready(`serving ${path}`);

  const signal = await Promise.race([stopped, listener.failure]);
  if (signal instanceof Error) throw signal;
  log.info({ signal, connections: frontDoor.connections }, 'stopping');
  // One time for all: the unit allows for no more.
  const until = Date.now() + config.shutdownTimeout;
  await listener.close();
  await supervisor.stopping(config.shutdownTimeout + CLOSING_MS, 'running calls end');
  const cut = await frontDoor.shutdown(config.shutdownTimeout);
  local.close();
  await resizing.close(Math.max(0, until - Date.now()));
  // Last: until then there is something to see.
  await metrics.close();
  if (cut > 0)
    log.warn({ cut, timeoutMs: config.shutdownTimeout }, 'calls were cut: they ran longer than the shutdown timeout');
  log.info(countersFields(counters.snapshot()), 'stopped');
  supervisor.close();
}

/** A fault of ours that nothing catches: one line in the log, and the end, since what state we are in is not known. */
function dieLoudly(log: Log): void {
  process.on('uncaughtException', (error) => {
    log.error(loggableError(error), 'the shim has failed');
    process.exit(Exit.failed);
  });
}

/** Says on stderr why the shim ends; gives the exit code. */
function complain(error: unknown): number {
  const lines = error instanceof ConfigError ? error.problems : [messageOf(error)];
  for (const line of lines) process.stderr.write(`cri-resize-shim: ${line}\n`);
  if (!(error instanceof ConfigError) || error.source !== 'usage') return Exit.failed;
  process.stderr.write('cri-resize-shim: --help lists the flags\n');
  return Exit.usage;
}
