import { CgroupTree } from '../cgroups/index.ts';
import {
  type Config,
  type Counters,
  type Log,
  messageOf,
  type NodeReadings,
  type PassedSocket,
  type ReadinessCheck,
  type ReadinessReport,
  SharedCall,
  systemClock,
  version,
} from '../core/index.ts';
import {
  Journal,
  type Overview,
  overviewOf,
  Recovery,
  readinessOf,
  recover,
  restoreLeftHighs,
  volumeTotals,
} from '../sandbox/index.ts';
import {
  createInterceptors,
  type Interceptors,
  type Listener,
  type LocalHandlers,
  listenOnInherited,
  localHandlers,
  passThroughHandlers,
} from '../server/index.ts';
import type { PodResizes } from './pod-resizes.ts';
import { createResizeCore, type ResizeCore } from './resize-core.ts';
import { ResizeRequests } from './resize-requests.ts';

/** All components that act on resizes. */
export interface Resizing {
  readonly interceptors: Interceptors;
  /** The handlers of the local gRPC server. */
  readonly handlers: LocalHandlers;
  /**
   * Reads the state of the node and serves the resize API. Call it after the CRI socket is open: until then another
   * shim may be running. Never rejects: the shim serves the CRI also without the resize API.
   */
  begin(): Promise<void>;
  /** Whether the shim can resize. Never rejects. */
  readiness(): Promise<ReadinessReport>;
  readings(): NodeReadings;
  /** Rejects with BACKEND_UNAVAILABLE, or with the signal's reason once it aborts. */
  overview(signal?: AbortSignal): Promise<Overview>;
  /** Calls `onResize` for each event of a resize, until the function that it returns is called. */
  watchResizes(onResize: () => void): () => void;
  /** Stops waiting for memory reclaim before forwarding calls, so that these calls do not delay the shutdown. */
  letCallsThrough(): void;
  /** Reports that clients were served without the shim for this time, in milliseconds since the epoch. */
  bypassEnded(times: { readonly start: number; readonly end: number }): void;
  /** Why every call is forwarded unchanged; undefined if the shim acts on resizes. */
  readonly passThrough?: string;
  /** Reports that kubelet no longer uses the shim, or uses it again. */
  endpointChanged(isDrift: boolean, note: string): void;
  /** Waits for running resizes, at most `graceMs`, and closes everything. */
  close(graceMs: number): Promise<void>;
}

/**
 * Returns a component that intercepts nothing. It closes connections to a resize API socket that systemd opened, and
 * restores memory limits that a killed shim had lowered temporarily.
 */
export function noResizing(
  config: Pick<Config, 'stateFolder' | 'cgroupRoot'>,
  log: Log,
  { passed, connections, problems }: Outside,
): Resizing {
  let refusing: Listener | undefined;
  const report = passThroughReport(problems);
  const readiness = (): Promise<ReadinessReport> => Promise.resolve(report);
  return {
    ...passThroughHandlers({ version, readiness, connections }),
    async begin() {
      if (passed !== undefined)
        refusing = await listenOnInherited({ ...passed, onConnection: (connection) => connection.destroy() });
      void restoreHighs(config, log);
    },
    readiness,
    readings: () => ({ pods: 0, volumes: { count: 0, size: 0, used: 0 }, unfinished: [], foresight: false }),
    overview: () => Promise.resolve({ pods: [], recent: [], history: [] }),
    watchResizes: () => () => undefined,
    letCallsThrough: () => undefined,
    bypassEnded: () => undefined,
    endpointChanged: () => undefined,
    passThrough: report.checks.map(({ name, says }) => `${name} is ${says}`).join('; '),
    close: async () => refusing?.close(),
  };
}

/** Restores temporarily lowered limits. Never rejects. Also ends on a hanging disk: the journal limits each wait. */
async function restoreHighs({ stateFolder, cgroupRoot }: Parameters<typeof noResizing>[0], log: Log): Promise<void> {
  const journal = await Journal.open(stateFolder, { log });
  await restoreLeftHighs(new CgroupTree(cgroupRoot), log, await journal.load());
  await journal.close();
}

/** The parts of the daemon that {@link createResizing} and {@link noResizing} use. */
export interface Outside {
  /** The socket of the resize API, if systemd created it. */
  readonly passed: PassedSocket | undefined;
  /** Number of clients on the CRI socket. */
  readonly connections: () => number;
  /** Whether kubelet uses the shim, as far as that is known. */
  readonly endpointCheck: () => ReadinessCheck | undefined;
  /** Problems of an invalid configuration file. None, and no resizes: `intercept: false` is configured. */
  readonly problems: readonly string[];
}

/** Limits of the text of a report: a file may have any number of problems. */
const MOST_PROBLEMS = 3;
const LONGEST_PROBLEM = 300;

function passThroughReport(problems: readonly string[]): ReadinessReport {
  if (problems.length === 0) {
    const check = { name: 'intercept', ready: true, says: 'off by configuration: every call is forwarded unchanged' };
    return { ready: true, checks: [check], passThrough: 'configured' };
  }
  const shown = problems.slice(0, MOST_PROBLEMS).map((line) => line.slice(0, LONGEST_PROBLEM));
  const more = problems.length > MOST_PROBLEMS ? `; and ${problems.length - MOST_PROBLEMS} more` : '';
  const says = `invalid, so every call is forwarded unchanged: ${shown.join('; ')}${more}`;
  return {
    ready: false,
    checks: [{ name: 'configuration', ready: false, says }],
    passThrough: 'invalid configuration',
  };
}

/**
 * Assembles what acts on resizes: the backend client, the state of the node, the interceptors and the resize API.
 * @param outside what the rest of the daemon knows
 */
export function createResizing(
  config: Config,
  log: Log,
  counters: Counters,
  { passed, connections, endpointCheck }: Outside,
): Resizing {
  const core = createResizeCore(config, log, counters);
  const { node, decreaseReclaimer, kubelet, podResizes } = core;
  const { backend, journal } = node;
  const requests = new ResizeRequests(config, core, passed);
  const readiness = async (): Promise<ReadinessReport> =>
    withChecks(await readinessOf(node), [...requests.optionalChecks(), endpointCheck()]);
  const interceptors = createInterceptors(node, decreaseReclaimer, { version, readiness, connections });
  const recovery = new Recovery(() => recover(node), systemClock);
  // Shared, so that many views of the status page cost no more than one.
  const overview = new SharedCall((signal) => overviewOf(node, podResizes.pods, signal));
  journal.onUnfinished(() => recovery.retry());
  journal.onLate(lateRecords(recovery, podResizes, log));
  return {
    interceptors,
    handlers: localHandlers(interceptors, backend),
    readiness,
    readings: () => readingsOf(core),
    overview: (signal) => overview.run(signal),
    watchResizes: (onResize) => watchResizes(podResizes, onResize, log),
    async begin() {
      kubelet?.begin();
      await requests.serveApi(readiness);
      // On every connection, including the first one: pods may have changed in the meantime.
      backend.onConnected(() => {
        core.backendDriver.reconnected();
        void recovery.begin().then(() => requests.restore());
      });
    },
    letCallsThrough: () => decreaseReclaimer.openComparisons(),
    bypassEnded: (times) => requests.bypassEnded(times),
    endpointChanged: (isDrift, note) => requests.endpointChanged(isDrift, note),
    async close(graceMs) {
      kubelet?.close();
      recovery.close();
      requests.closeWatch();
      await Promise.all([requests.close(graceMs), decreaseReclaimer.close()]);
      backend.close();
      await core.closeJournal();
    },
  };
}

const withChecks = (
  { ready, checks }: ReadinessReport,
  more: readonly (ReadinessReport['checks'][number] | undefined)[],
): ReadinessReport => ({ ready, checks: [...checks, ...more.filter((check) => check !== undefined)] });

/** Returns what to do with records read after the start: recover pods, and continue their deferred requests. */
const lateRecords =
  (recovery: Recovery, podResizes: PodResizes, log: Log) =>
  (pods: readonly { readonly podUid: string }[]): void => {
    // Called once per batch: recovery covers all late records.
    recovery.retry();
    podResizes.restoreLate(new Set(pods.map(({ podUid }) => podUid))).catch((error: unknown) => {
      log.error({ error: messageOf(error) }, 'deferred resizes of late records not restored');
    });
  };

function watchResizes({ resizes }: PodResizes, onResize: () => void, log: Log): () => void {
  try {
    const watch = resizes.watch();
    const read = async (): Promise<void> => {
      for await (const { resize } of watch) if (resize !== '') onResize();
    };
    // The watch ends with the shim.
    read().catch((error: unknown) => log.debug({ error: messageOf(error) }, 'watch of the status page ended'));
    return () => watch.end();
  } catch (error) {
    // All watches are in use: the page is updated by time alone.
    log.warn({ error: messageOf(error) }, 'resizes are not watched for the status page');
    return () => undefined;
  }
}

const readingsOf = ({ node: { registry, volumes }, podResizes, kubelet }: ResizeCore): NodeReadings => ({
  pods: registry.pods.length,
  volumes: volumeTotals(volumes),
  unfinished: podResizes.resizes.unfinished,
  foresight: kubelet?.isPresent ?? false,
});
