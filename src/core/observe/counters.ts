import { grpcCodeName } from '../grpc.ts';
import { families } from './families.ts';
import { Counter, type Family, Histogram } from './family.ts';
import {
  budgets,
  type Counters,
  failOpenReasons,
  foresightEvents,
  ignoredPodReasons,
  journalFaults,
  type LogFields,
  logDrops,
  protocolErrorCodes,
  reclaimOutcomes,
  recoveryOutcomes,
  undoOutcomes,
} from './interfaces.ts';

/** Totals since the start, for the last line of the log. */
export interface CountersSnapshot {
  readonly failOpen: Readonly<Record<string, number>>;
  readonly interceptedCalls: readonly {
    readonly method: string;
    /** Name of the gRPC status code. */
    readonly code: string;
    readonly count: number;
    /** Sum of the durations. */
    readonly milliseconds: number;
  }[];
  readonly passedCalls: number;
  readonly protocolErrors: Readonly<Record<string, number>>;
  readonly journalFaults: Readonly<Record<string, number>>;
  /** By state and direction: `Completed up`. */
  readonly resizes: Readonly<Record<string, number>>;
  /** By direction and result: `shrink refused`. */
  readonly remounts: Readonly<Record<string, number>>;
  readonly foresight: Readonly<Record<string, number>>;
  readonly foresightReclaimedBytes: number;
}

export interface CountersInMemory extends Counters {
  snapshot(): CountersSnapshot;
  /** All counters and histograms, for Prometheus. */
  readonly families: readonly Family[];
}

const seconds = (milliseconds: number): number => milliseconds / 1000;

/**
 * Series that start at 0. If a series starts with its first event, Prometheus misses that event (`increase` has no
 * earlier sample). All counters that alerts apply `increase` to start at 0.
 */
const fromStart = <Value extends string>(values: readonly Value[]): readonly (readonly [Value])[] =>
  values.map((value) => [value]);

/** Creates the shim's counters in memory. */
export function createCounters(): CountersInMemory {
  const fed = createFamilies();
  return {
    interceptedCall(method, code, milliseconds, backendMs) {
      fed.callDuration.observe([method, grpcCodeName(code)], seconds(milliseconds));
      if (backendMs !== undefined) fed.callAdded.observe([method], seconds(Math.max(0, milliseconds - backendMs)));
    },
    passedCall: (method, outcome) => fed.passedCalls.add([method, outcome]),
    failOpen: (reason) => fed.failOpen.add([reason]),
    protocolError: (code) => fed.protocolErrors.add([code]),
    resize: (state, direction) => fed.resizes.add([state, direction]),
    resizeState: (state) => fed.resizeStates.add([state]),
    step: (kind, milliseconds) => fed.stepDuration.observe([kind], seconds(milliseconds)),
    undo: (outcome) => fed.undos.add([outcome]),
    recovery: (outcome) => fed.recoveries.add([outcome]),
    reclaim: (outcome, milliseconds) => fed.reclaimDuration.observe([outcome], seconds(milliseconds)),
    oomKills: (count) => fed.oomKills.add([], count),
    journalFault: (fault) => fed.journalFaults.add([fault]),
    notifyFault: () => fed.notifyFaults.add([]),
    remount: (direction, result) => fed.remounts.add([direction, result]),
    foresight: (event) => fed.foresight.add([event]),
    foresightReclaimed: (bytes) => fed.foresightReclaimed.add([], bytes),
    logDropped: (reason) => fed.logDropped.add([reason]),
    ignoredPod: (reason) => fed.ignoredPods.add([reason]),
    refused: (budget) => fed.refused.add([budget]),
    families: Object.values(fed),
    snapshot: () => snapshotOf(fed),
  };
}

/** Counters that nobody reads. */
export const noCounters: Counters = createCounters();

/** Counters and histograms, in the order of the exposition. */
function createFamilies() {
  return {
    callDuration: new Histogram(families.callDuration),
    callAdded: new Histogram(families.callAdded),
    passedCalls: new Counter(families.passedCalls),
    failOpen: new Counter(families.failOpen, fromStart(failOpenReasons)),
    protocolErrors: new Counter(families.protocolErrors, fromStart(protocolErrorCodes)),
    resizes: new Counter(families.resizes),
    resizeStates: new Counter(families.resizeStates),
    stepDuration: new Histogram(families.stepDuration),
    undos: new Counter(families.undos, fromStart(undoOutcomes)),
    recoveries: new Counter(families.recoveries, fromStart(recoveryOutcomes)),
    reclaimDuration: new Histogram(families.reclaimDuration, fromStart(reclaimOutcomes)),
    oomKills: new Counter(families.oomKills),
    remounts: new Counter(families.remounts),
    journalFaults: new Counter(families.journalFaults, fromStart(journalFaults)),
    notifyFaults: new Counter(families.notifyFaults),
    foresight: new Counter(families.foresight, fromStart(foresightEvents)),
    foresightReclaimed: new Counter(families.foresightReclaimed),
    logDropped: new Counter(families.logDropped, fromStart(logDrops)),
    ignoredPods: new Counter(families.ignoredPods, fromStart(ignoredPodReasons)),
    refused: new Counter(families.refused, fromStart(budgets)),
  };
}

function snapshotOf(fed: ReturnType<typeof createFamilies>): CountersSnapshot {
  return {
    failOpen: byLabels(fed.failOpen),
    interceptedCalls: fed.callDuration.distributions.map(({ labels: [method = '', code = ''], count, sum }) => ({
      method,
      code,
      count,
      milliseconds: sum * 1000,
    })),
    passedCalls: totalOf(fed.passedCalls),
    protocolErrors: byLabels(fed.protocolErrors),
    journalFaults: byLabels(fed.journalFaults),
    resizes: byLabels(fed.resizes),
    remounts: byLabels(fed.remounts),
    foresight: byLabels(fed.foresight),
    foresightReclaimedBytes: totalOf(fed.foresightReclaimed),
  };
}

const totalOf = (counter: Pick<Counter<readonly string[]>, 'counts'>): number =>
  counter.counts.reduce((sum, { value }) => sum + value, 0);

const byLabels = (counter: Pick<Counter<readonly string[]>, 'counts'>): Readonly<Record<string, number>> =>
  Object.fromEntries(counter.counts.flatMap(({ labels, value }) => (value === 0 ? [] : [[labels.join(' '), value]])));

/** Formats a snapshot as the fields of one log line. */
export function countersFields(snapshot: CountersSnapshot): LogFields {
  const pairs = (counts: Readonly<Record<string, number>>): string[] =>
    Object.entries(counts).map(([name, count]) => `${name} ${count}`);
  return {
    failOpen: pairs(snapshot.failOpen),
    protocolErrors: pairs(snapshot.protocolErrors),
    journalFaults: pairs(snapshot.journalFaults),
    resizes: pairs(snapshot.resizes),
    remounts: pairs(snapshot.remounts),
    foresight: pairs(snapshot.foresight),
    foresightReclaimedBytes: snapshot.foresightReclaimedBytes,
    passedCalls: snapshot.passedCalls,
    interceptedCalls: snapshot.interceptedCalls.map(
      ({ method, code, count, milliseconds }) => `${method} code ${code}: ${count}, ${Math.round(milliseconds)} ms`,
    ),
  };
}
