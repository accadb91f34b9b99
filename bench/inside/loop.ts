import { createServer } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** Interval of the monitor, in milliseconds. */
const INTERVAL_MS = 1;

/** The report of a measured shim about itself. */
export interface LoopReport {
  /** The longest turn of the event loop since the previous report, in milliseconds. */
  readonly longestTurnMs: number;
  /**
   * The most CPU time of the main thread in one turn, in milliseconds. Other work on the machine does not add to it.
   * The kernel counts it with each of its ticks (getrusage(2), RUSAGE_THREAD): every 4 ms with CONFIG_HZ=250.
   */
  readonly longestCpuMs: number;
  /** Bytes in use on V8's heap and outside of it, after a collection. */
  readonly heapBytes: number;
}

const threadCpuMs = (): number => {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
};

/**
 * Answers each connection to the socket with a {@link LoopReport} in JSON, and closes it. The collection for the report
 * does not count as a turn.
 */
export function serveLoopReports(socket: string): void {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  let [wall, cpu] = [performance.now(), threadCpuMs()];
  let [longestTurnMs, longestCpuMs] = [0, 0];
  // Timers run once per turn, so the time between two checks is at most the interval plus one turn.
  const look = (): void => {
    const [wallNow, cpuNow] = [performance.now(), threadCpuMs()];
    longestTurnMs = Math.max(longestTurnMs, wallNow - wall - INTERVAL_MS);
    longestCpuMs = Math.max(longestCpuMs, cpuNow - cpu);
    [wall, cpu] = [wallNow, cpuNow];
  };
  setInterval(look, INTERVAL_MS).unref();
  createServer((client) => {
    look();
    const turns = { longestTurnMs, longestCpuMs };
    collect();
    const { heapUsed, external } = process.memoryUsage();
    [longestTurnMs, longestCpuMs] = [0, 0];
    [wall, cpu] = [performance.now(), threadCpuMs()];
    client.end(JSON.stringify({ ...turns, heapBytes: heapUsed + external } satisfies LoopReport));
  })
    .listen(socket)
    .unref();
}
