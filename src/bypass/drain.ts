import { closeSync, readdirSync, readFileSync, readlinkSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { errnoOf, messageOf, SS_CONNECTED, SS_CONNECTING, unixSockets } from '../core/index.ts';
import { loadProcessCalls, type ProcessCalls } from './calls.ts';

/** A byte-wise proxy whose clients move to another process that accepts on the same socket. */
export interface Proxy {
  readonly procRoot: string;
  readonly pid: number;
  /** The path of the socket that it serves. */
  readonly listen: string;
  /** Descriptors through which no bytes of clients pass, although they may look so. */
  readonly ignored?: readonly number[];
}

export interface DrainOptions {
  /** How long calls may run, in milliseconds. */
  readonly timeoutMs: number;
  /** Ends this early, as the timeout does. */
  readonly signal?: AbortSignal;
  /** Ends this early: the proxy accepts clients again. */
  readonly interrupt?: AbortSignal;
  /** Whether the other process still serves. If not, the proxy accepts clients again. */
  readonly isReplaced: () => Promise<boolean>;
  readonly say: (line: string) => void;
}

/** `drained`: all clients moved. `timed out`: calls still run. `not replaced`, `interrupted`: proxy continues. */
export type DrainResult = 'drained' | 'timed out' | 'not replaced' | 'interrupted';

/**
 * GOAWAY of RFC 9113 with the highest stream id and NO_ERROR: the server takes no new streams on this connection, and
 * answers all those that are open. The client opens another connection for its next call, and closes this one after its
 * last answer.
 */
const GOAWAY = Buffer.from('0000080700000000007fffffff00000000', 'hex');

/**
 * With no byte from the backend for this long, the last one was the end of a frame: a frame is written at once. There
 * is no event for it: where a frame ends is only known to those who have read the connection from its beginning.
 */
const SILENCE_MS = 25;
/**
 * How long the backend has had every connection before its client gets a GOAWAY. The first frame of a connection has to
 * be the SETTINGS of the backend (RFC 9113 3.4), which it sends when it accepts; a client that gets a GOAWAY first
 * fails its calls. The descriptors do not show which frames have passed.
 */
const SETTINGS_MS = 250;
/** The proxy runs for this long between two attempts, so that calls proceed. */
const RETRY_MS = 100;
/**
 * How often the connections and the other process are looked at. There is no event for a connection that the proxy
 * closes: /proc sends none, and a duplicate of its descriptor to wait on would keep the connection open for the client.
 */
const WATCH_MS = 200;
/** The kernel notifies only the parent of a process that it has stopped. */
const STOP_MS = 1;

/**
 * Moves the clients of a proxy that knows no HTTP/2 (systemd-socket-proxyd) without losing a call:
 *
 * 1. The proxy can open no further descriptors: from now on only the other process accepts clients.
 * 2. The backend accepts the connections that are new, and sends its SETTINGS.
 * 3. In a moment in which nothing comes from the backend, each client gets a GOAWAY over a duplicate of the proxy's
 *    descriptor. The proxy is stopped for these milliseconds, so that nothing comes between.
 * 4. Each client goes when its last call is answered.
 *
 * Rejects if the kernel does not allow it: before Linux 5.6, or without CAP_SYS_PTRACE.
 */
export async function drain(proxy: Proxy, options: DrainOptions): Promise<DrainResult> {
  const { timeoutMs, signal, interrupt, isReplaced, say } = options;
  const calls = await loadProcessCalls();
  const { pid } = proxy;
  const deadline = performance.now() + timeoutMs;
  const before = calls.limitDescriptors(pid, 0n);
  const over = async (): Promise<DrainResult | undefined> => {
    const isEnded = interrupt?.aborted === true;
    if (isEnded || !(await isReplaced())) {
      calls.limitDescriptors(pid, before);
      return isEnded ? 'interrupted' : 'not replaced';
    }
    return signal?.aborted === true || performance.now() > deadline ? 'timed out' : undefined;
  };
  const ending = AbortSignal.any([signal, interrupt].filter((one) => one !== undefined));
  const pause = (milliseconds: number): Promise<void> =>
    delay(milliseconds, undefined, { signal: ending }).catch(() => undefined);
  try {
    const goaways = new Goaways(proxy, calls);
    const said = new Set<string>();
    for (;;) {
      const obstacle = await goaways.send();
      if (obstacle === undefined) break;
      const result = await over();
      if (result !== undefined) return result;
      if (!said.has(obstacle) && obstacle !== 'new connections') say(`waiting for ${obstacle}`);
      said.add(obstacle);
      await pause(RETRY_MS);
    }
    for (let left = -1; ; ) {
      const { length } = clientsOf(proxy);
      if (length === 0) return 'drained';
      if (length !== left) say(`${length} connections have calls that run`);
      left = length;
      const result = await over();
      if (result !== undefined) return result;
      await pause(WATCH_MS);
    }
  } catch (error) {
    if (!isRunning(proxy)) return 'drained';
    calls.limitDescriptors(pid, before);
    // Ctrl-C also reaches the program that looks whether the other process serves.
    if (interrupt?.aborted === true) return 'interrupted';
    throw new Error(`cannot move the clients of process ${pid}: ${messageOf(error)}`, { cause: error });
  }
}

const clientsOf = ({ procRoot, pid, listen }: Proxy): readonly number[] => descriptorsOf(procRoot, pid, listen).clients;

/** Why the clients cannot get a GOAWAY now. */
type Obstacle = 'a moment without traffic' | 'the runtime to accept its connections' | 'new connections';

/** Sends a GOAWAY to all clients of a proxy that accepts no more. */
class Goaways {
  /** Since when no connection to the backend waits to be accepted. */
  #acceptedSince: number | undefined;

  constructor(
    private readonly proxy: Proxy,
    private readonly calls: ProcessCalls,
  ) {}

  /** Returns undefined once all clients have got it. If bytes came from the backend meanwhile, none gets it. */
  async send(): Promise<Obstacle | undefined> {
    const { procRoot, pid, listen, ignored = [] } = this.proxy;
    const calls = this.calls;
    const proxyProcess = calls.open(pid);
    process.kill(pid, 'SIGSTOP');
    try {
      while (stateOf(this.proxy) !== 'T') await delay(STOP_MS);
      await delay(SILENCE_MS);
      const { clients, fromBackend, backends, unaccepted } = descriptorsOf(procRoot, pid, listen);
      const isOurs = (descriptor: number): boolean => !ignored.includes(descriptor);
      const pathOf = (descriptor: number): string =>
        withDuplicate(proxyProcess, descriptor, calls, (own) => calls.peerPath(own));
      if (unaccepted.size > 0 && backends.filter(isOurs).some((descriptor) => unaccepted.has(pathOf(descriptor)))) {
        this.#acceptedSince = undefined;
        return 'the runtime to accept its connections';
      }
      this.#acceptedSince ??= performance.now();
      if (performance.now() - this.#acceptedSince < SETTINGS_MS) return 'new connections';
      if (!isSilent(fromBackend.filter(isOurs), proxyProcess, calls)) return 'a moment without traffic';
      const areTold = clients.map((descriptor) => withDuplicate(proxyProcess, descriptor, calls, isTold));
      return areTold.includes(false) ? 'a moment without traffic' : undefined;
    } finally {
      process.kill(pid, 'SIGCONT');
      closeSync(proxyProcess);
    }
  }
}

/** Sends a GOAWAY. Returns false if the client reads nothing now. A second one is no harm to the others. */
function isTold(client: number): boolean {
  try {
    writeSync(client, GOAWAY);
    return true;
  } catch (error) {
    const code = errnoOf(error);
    if (code === 'EAGAIN') return false;
    // The client has gone meanwhile.
    if (code === 'EPIPE' || code === 'ECONNRESET') return true;
    throw error;
  }
}

const isSilent = (fromBackend: readonly number[], proxyProcess: number, calls: ProcessCalls): boolean =>
  fromBackend.every((descriptor) => withDuplicate(proxyProcess, descriptor, calls, (own) => calls.pending(own)) === 0);

function withDuplicate<Result>(
  proxyProcess: number,
  descriptor: number,
  calls: ProcessCalls,
  use: (own: number) => Result,
): Result {
  const own = calls.duplicate(proxyProcess, descriptor);
  try {
    return use(own);
  } finally {
    closeSync(own);
  }
}

/** A process's state in /proc/PID/stat, after the name in parentheses: T if stopped. Throws if it is gone. */
function stateOf({ procRoot, pid }: Proxy): string {
  const text = readFileSync(join(procRoot, String(pid), 'stat'), 'utf8');
  return text.slice(text.lastIndexOf(')') + 2, text.lastIndexOf(')') + 3);
}

function isRunning(proxy: Proxy): boolean {
  try {
    return stateOf(proxy) !== 'Z';
  } catch {
    return false;
  }
}

/** Descriptors of a proxy that serves a unix socket, by what they are. */
export interface ProxyDescriptors {
  /** Connections of clients. */
  readonly clients: readonly number[];
  /** Everything through which bytes come from the backend: connections to it, and pipes. */
  readonly fromBackend: readonly number[];
  /** Those of them that are connections to it. */
  readonly backends: readonly number[];
  /** The paths of the sockets that have connections which nobody has accepted yet. */
  readonly unaccepted: ReadonlySet<string>;
}

/** Finds the descriptors of a process that serves the socket `listen`. Throws if its /proc cannot be read. */
export function descriptorsOf(procRoot: string, pid: number, listen: string): ProxyDescriptors {
  const folder = join(procRoot, String(pid), 'fd');
  const sockets = unixSockets(readFileSync(join(procRoot, String(pid), 'net/unix'), 'utf8'));
  const byInode = new Map(sockets.map((socket) => [socket.inode, socket]));
  const [clients, fromBackend, backends]: [number[], number[], number[]] = [[], [], []];
  for (const name of readdirSync(folder)) {
    const [, kind, inode = ''] = /^(socket|pipe):\[(\d+)\]$/.exec(targetOf(join(folder, name))) ?? [];
    if (kind === 'pipe') fromBackend.push(Number(name));
    const socket = kind === 'socket' ? byInode.get(inode) : undefined;
    if (socket?.state !== SS_CONNECTED) continue;
    // An accepted socket has the path of the one that listens; one that has connected has none.
    if (socket.path === listen) clients.push(Number(name));
    else {
      fromBackend.push(Number(name));
      backends.push(Number(name));
    }
  }
  // Until a connection is accepted, its other end belongs to no process, and has the path of the socket that listens.
  const waiting = sockets.filter(({ state }) => state === SS_CONNECTING);
  return { clients, fromBackend, backends, unaccepted: new Set(waiting.map(({ path }) => path)) };
}

/** A descriptor may be closed while the folder is read. */
function targetOf(link: string): string {
  try {
    return readlinkSync(link);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return '';
    throw error;
  }
}
