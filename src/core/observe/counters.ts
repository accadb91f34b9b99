import { families } from './families.ts';
import { Counter, type Family, Histogram } from './family.ts';
import { grpcCodeName } from '../grpc.ts';
import type {
  Budget,
  Counters,
  FailOpenReason,
  ForesightEvent,
  IgnoredPodReason,
  JournalFault,
  LogDrop,
  LogFields,
  ProtocolErrorCode,
  ReclaimOutcome,
  RecoveryOutcome,
  UndoOutcome,
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
 * The label values whose series start at 0. Prometheus does not see the first event of a series that starts with it
 * (`increase` has no earlier sample), so this covers every counter whose increase alerts use. A record, so that the compiler reports
 * missing values.
 */
const fromStart = <Value extends string>(values: Readonly<Record<Value, true>>): readonly (readonly [Value])[] =>
  (Object.keys(values) as Value[]).map((value) => [value]);

const failOpenReasons = fromStart<FailOpenReason>({
  unknown_pod: true,
  unreadable_state: true,
  undecodable: true,
  amend_failed: true,
});
const protocolErrorCodes = fromStart<ProtocolErrorCode>({
  PROTOCOL_ERROR: true,
  INTERNAL_ERROR: true,
  FLOW_CONTROL_ERROR: true,
  STREAM_CLOSED: true,
  FRAME_SIZE_ERROR: true,
  COMPRESSION_ERROR: true,
  ENHANCE_YOUR_CALM: true,
  UNKNOWN: true,
});
const reclaimOutcomes = fromStart<ReclaimOutcome>({ done: true, not_reclaimable: true, timeout: true, failed: true });
const undoOutcomes = fromStart<UndoOutcome>({ undone: true, failed: true });
const recoveryOutcomes = fromStart<RecoveryOutcome>({ finished: true, undone: true, gone: true, failed: true });
const journalFaultKinds = fromStart<JournalFault>({
  bad_record: true,
  newer_record: true,
  unread_record: true,
  unavailable: true,
});
const foresightEvents = fromStart<ForesightEvent>({
  unreadable: true,
  stuck: true,
  held: true,
  unstuck: true,
  deferred: true,
  given_up: true,
});

const logDrops = fromStart<LogDrop>({ slow_reader: true, rate: true });
const ignoredPodReasons = fromStart<IgnoredPodReason>({
  other_pod: true,
  not_static: true,
  duplicate_uid: true,
  too_large: true,
});
const budgets = fromStart<Budget>({
  connections: true,
  handshake: true,
  streams: true,
  handled_calls: true,
  requests: true,
  decompressed: true,
  lingering: true,
  page_streams: true,
  page_updates: true,
});

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

/** Counters and histograms, in the order of the exposition. */
function createFamilies() {
  return {
    callDuration: new Histogram(families.callDuration),
    callAdded: new Histogram(families.callAdded),
    passedCalls: new Counter(families.passedCalls),
    failOpen: new Counter(families.failOpen, failOpenReasons),
    protocolErrors: new Counter(families.protocolErrors, protocolErrorCodes),
    resizes: new Counter(families.resizes),
    resizeStates: new Counter(families.resizeStates),
    stepDuration: new Histogram(families.stepDuration),
    undos: new Counter(families.undos, undoOutcomes),
    recoveries: new Counter(families.recoveries, recoveryOutcomes),
    reclaimDuration: new Histogram(families.reclaimDuration, reclaimOutcomes),
    oomKills: new Counter(families.oomKills),
    remounts: new Counter(families.remounts),
    journalFaults: new Counter(families.journalFaults, journalFaultKinds),
    notifyFaults: new Counter(families.notifyFaults),
    foresight: new Counter(families.foresight, foresightEvents),
    foresightReclaimed: new Counter(families.foresightReclaimed),
    logDropped: new Counter(families.logDropped, logDrops),
    ignoredPods: new Counter(families.ignoredPods, ignoredPodReasons),
    refused: new Counter(families.refused, budgets),
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
