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
  /** Descriptors that look like client connections or pipes but carry no client data. */
  readonly ignored?: readonly number[];
}

export interface DrainOptions {
  /** Maximum time that calls may continue to run, in milliseconds. */
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
 * If the backend has sent nothing for this long, its last byte ended a frame, because a frame is written at once. The
 * descriptors do not show frame boundaries: only a reader of the whole connection knows them.
 */
const SILENCE_MS = 25;
/**
 * Time between the backend's accept of the last connection and the GOAWAY to its client. The first frame of a
 * connection must be the backend's SETTINGS (RFC 9113 3.4), which the backend sends after its accept. A client that
 * gets a GOAWAY first fails its calls. The descriptors do not show which frames have passed.
 */
const SETTINGS_MS = 250;
/** The proxy runs for this long between two attempts, so that calls proceed. */
const RETRY_MS = 100;
/**
 * Interval between checks of the connections and of the other process. /proc reports no event when the proxy closes a
 * connection, and a duplicate of its descriptor would keep the connection open for the client.
 */
const WATCH_MS = 200;
/** Interval between checks for the stop: the kernel notifies only the parent of a stopped process. */
const STOP_MS = 1;

/**
 * Moves the clients of a proxy without HTTP/2 (systemd-socket-proxyd) to another process without losing a call:
 *
 * 1. Prevents the proxy from opening further descriptors: from now on only the other process accepts clients.
 * 2. Waits until the backend has accepted the new connections and sent its SETTINGS.
 * 3. Sends each client a GOAWAY over a duplicate of the proxy's descriptor, while the backend sends nothing. The proxy
 *    is stopped for these milliseconds, so that no other bytes come between.
 * 4. Waits until each client has closed its connection after its last call was answered.
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
    // Ctrl-C also reaches the program that checks whether the other process serves.
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

  /** Returns undefined once all clients have got a GOAWAY. If the backend sends bytes meanwhile, no client gets it. */
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

/** Sends a GOAWAY. Returns false if the client currently reads nothing. A repeated GOAWAY does no harm. */
function isTold(client: number): boolean {
  try {
    writeSync(client, GOAWAY);
    return true;
  } catch (error) {
    const code = errnoOf(error);
    if (code === 'EAGAIN') return false;
    // The client has disconnected meanwhile.
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

/** Returns a process's state from /proc/PID/stat (after the name in parentheses): T if stopped. Throws if gone. */
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
  /** Connections to the backend and pipes: everything that carries bytes from the backend. */
  readonly fromBackend: readonly number[];
  /** The connections to the backend among `fromBackend`. */
  readonly backends: readonly number[];
  /** Paths of the sockets that have connections waiting to be accepted. */
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
    // An accepted socket has the path of the listening socket; a socket that has connected has no path.
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
