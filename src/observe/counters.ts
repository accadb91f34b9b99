import { families } from './families.ts';
import { Counter, type Family, Histogram } from './family.ts';
import { grpcCodeName } from './grpc-code.ts';
import type {
  Counters,
  FailOpenReason,
  ForesightEvent,
  JournalFault,
  LogFields,
  RecoveryOutcome,
  UndoOutcome,
} from './interfaces.ts';

/** What was counted since the start, for the last line of the log. */
export interface CountersSnapshot {
  readonly failOpen: Readonly<Record<string, number>>;
  readonly interceptedCalls: readonly {
    readonly method: string;
    /** gRPC's name of it. */
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

export interface KeptCounters extends Counters {
  snapshot(): CountersSnapshot;
  /** The same and more, for Prometheus. */
  readonly families: readonly Family[];
}

const seconds = (milliseconds: number): number => milliseconds / 1000;

/**
 * What alerts go by is told as 0 from the start: of a series that begins with its first event, Prometheus would not see that
 * event (`increase` knows no sample before it). Records, so that the compiler misses none.
 */
const told = <Value extends string>(values: Readonly<Record<Value, true>>): readonly (readonly [Value])[] =>
  (Object.keys(values) as Value[]).map((value) => [value]);

const failOpenReasons = told<FailOpenReason>({
  ...{ unknown_pod: true, unreadable_state: true, undecodable: true, amend_failed: true },
});
const undoOutcomes = told<UndoOutcome>({ undone: true, failed: true });
const recoveryOutcomes = told<RecoveryOutcome>({ finished: true, undone: true, gone: true, failed: true });
const journalFaultKinds = told<JournalFault>({ bad_record: true, unavailable: true });
const foresightEvents = told<ForesightEvent>({
  ...{ unreadable: true, stuck: true, unstuck: true, deferred: true, given_up: true },
});

/** Counters in memory. */
export function createCounters(): KeptCounters {
  const callDuration = new Histogram(families.callDuration);
  const callAdded = new Histogram(families.callAdded);
  const passedCalls = new Counter(families.passedCalls);
  const failOpen = new Counter(families.failOpen, failOpenReasons);
  const protocolErrors = new Counter(families.protocolErrors);
  const resizes = new Counter(families.resizes);
  const resizeStates = new Counter(families.resizeStates);
  const stepDuration = new Histogram(families.stepDuration);
  const undos = new Counter(families.undos, undoOutcomes);
  const recoveries = new Counter(families.recoveries, recoveryOutcomes);
  const reclaimDuration = new Histogram(families.reclaimDuration);
  const oomKills = new Counter(families.oomKills);
  const journalFaults = new Counter(families.journalFaults, journalFaultKinds);
  const notifyFaults = new Counter(families.notifyFaults);
  const remounts = new Counter(families.remounts);
  const foresight = new Counter(families.foresight, foresightEvents);
  const foresightReclaimed = new Counter(families.foresightReclaimed);

  return {
    interceptedCall(method, code, milliseconds, backendMs) {
      callDuration.observe([method, grpcCodeName(code)], seconds(milliseconds));
      if (backendMs !== undefined) callAdded.observe([method], seconds(Math.max(0, milliseconds - backendMs)));
    },
    passedCall: (method, outcome) => passedCalls.add([method, outcome]),
    failOpen: (reason) => failOpen.add([reason]),
    protocolError: (code) => protocolErrors.add([code]),
    resize: (state, direction) => resizes.add([state, direction]),
    resizeState: (state) => resizeStates.add([state]),
    step: (kind, milliseconds) => stepDuration.observe([kind], seconds(milliseconds)),
    undo: (outcome) => undos.add([outcome]),
    recovery: (outcome) => recoveries.add([outcome]),
    reclaim: (outcome, milliseconds) => reclaimDuration.observe([outcome], seconds(milliseconds)),
    oomKills: (count) => oomKills.add([], count),
    journalFault: (fault) => journalFaults.add([fault]),
    notifyFault: () => notifyFaults.add([]),
    remount: (direction, result) => remounts.add([direction, result]),
    foresight: (event) => foresight.add([event]),
    foresightReclaimed: (bytes) => foresightReclaimed.add([], bytes),
    families: [
      ...[callDuration, callAdded, passedCalls, failOpen, protocolErrors],
      ...[resizes, resizeStates, stepDuration, undos, recoveries, reclaimDuration, oomKills, remounts, journalFaults],
      ...[notifyFaults, foresight, foresightReclaimed],
    ],
    snapshot: () => ({
      failOpen: byLabels(failOpen),
      interceptedCalls: callDuration.distributions.map(({ labels: [method = '', code = ''], count, sum }) => ({
        ...{ method, code, count },
        milliseconds: sum * 1000,
      })),
      passedCalls: totalOf(passedCalls),
      protocolErrors: byLabels(protocolErrors),
      journalFaults: byLabels(journalFaults),
      resizes: byLabels(resizes),
      remounts: byLabels(remounts),
      foresight: byLabels(foresight),
      foresightReclaimedBytes: totalOf(foresightReclaimed),
    }),
  };
}

const totalOf = (counter: Pick<Counter<readonly string[]>, 'counts'>): number =>
  counter.counts.reduce((sum, { value }) => sum + value, 0);

const byLabels = (counter: Pick<Counter<readonly string[]>, 'counts'>): Readonly<Record<string, number>> =>
  Object.fromEntries(counter.counts.flatMap(({ labels, value }) => (value === 0 ? [] : [[labels.join(' '), value]])));

/** What was counted, as fields of one log line. */
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
