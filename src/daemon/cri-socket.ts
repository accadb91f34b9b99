import type { Socket } from 'node:net';
import { basename, dirname } from 'node:path';
import { type Config, type Counters, type Log, oncePerKey, type PassedSocket } from '../core/index.ts';
import {
  backendAt,
  CONNECTION_LIMIT,
  createClientConnections,
  createLocalServer,
  interceptionOf,
  type Listener,
  type ListenOptions,
  listen,
  listenOnInherited,
  loadPeerOf,
  proxyReport,
  refuseConnection,
  SHARED_LIMITS,
  SharedBudget,
  serveConnection,
  tooManyConnections,
  unknownPeer,
} from '../server/index.ts';
import type { Resizing } from './resizing.ts';

export interface CriSocketOptions {
  /** The socket, if systemd created it. */
  readonly passed: PassedSocket | undefined;
  readonly log: Log;
  readonly counters: Counters;
}

/** The socket on which the shim serves the CRI. */
export interface CriSocket {
  readonly path: string;
  /** Number of open connections of CRI clients. */
  readonly connections: number;
  /** The processes that have a connection; undefined if the shim cannot find out. */
  peers(): ReadonlySet<number> | undefined;
  /** Accepts connections. Rejects if the socket cannot be opened; `failure` resolves if listening fails later. */
  listen(): Promise<{ readonly failure: Promise<Error> }>;
  /** Accepts no further connections. Open connections continue. */
  closeListener(): Promise<void>;
  /** Waits for running calls, at most `timeoutMs`. Returns how many calls were cut off. */
  shutdown(timeoutMs: number): Promise<number>;
}

/** Creates the CRI socket with its pass-through and its intercepted calls. Does not listen yet. */
export function createCriSocket(
  config: Config,
  { handlers, interceptors }: Resizing,
  { passed, log, counters }: CriSocketOptions,
): CriSocket {
  const { containerRuntimeEndpoint: backendPath, logLevel, logPassedCalls } = config;
  const local = createLocalServer(handlers, { log, counters });
  const observer = proxyReport({ log, counters, logPassedCalls, isFirst: oncePerKey() });
  const shared = new SharedBudget(SHARED_LIMITS);
  let listener: Listener | undefined;
  const peers = loadPeerOf(log);
  let peerOf = unknownPeer;
  const connectBackend = backendAt(backendPath, () => listener?.mirrorBackend());
  const clients = createClientConnections({
    limit: CONNECTION_LIMIT,
    serve: (client, options) => serveConnection(client, { ...options, connectBackend, observer, shared }),
    refuse: (client) => refuseConnection(client, shared),
    peerOf: (client) => peerOf(client),
    tooMany: tooManyConnections(passed?.path ?? config.listen, log, counters),
    local,
    interception: interceptionOf(interceptors, { log, counters, debug: ['debug', 'trace'].includes(logLevel) }),
  });
  const onConnection = (client: Socket): void => clients.accept(client);
  return {
    path: passed?.path ?? config.listen,
    get connections() {
      return clients.connections;
    },
    peers: () => (peerOf === unknownPeer ? undefined : clients.peers()),
    async listen() {
      peerOf = await peers;
      listener =
        passed === undefined
          ? await listen({ ...ownSocketOf(config), onConnection, log })
          : await listenOnInherited({ ...passed, onConnection });
      return listener;
    },
    closeListener: async () => listener?.close(),
    async shutdown(timeoutMs) {
      const cut = await clients.shutdown(timeoutMs);
      local.close();
      return cut;
    },
  };
}

/** The socket that the shim creates itself. */
const ownSocketOf = (config: Config): Pick<ListenOptions, 'path' | 'rights' | 'neighbours'> => ({
  path: config.listen,
  rights: { like: config.containerRuntimeEndpoint },
  neighbours: neighboursOf(config),
});

/** The names of our other sockets in the folder of the CRI socket. */
function neighboursOf({ listen: criPath, resizeListen, metricsBind }: Config): readonly string[] {
  const others = [resizeListen, metricsBind.kind === 'unix' ? metricsBind.path : ''];
  return others.filter((path) => path !== '' && dirname(path) === dirname(criPath)).map((path) => basename(path));
}
