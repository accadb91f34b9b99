import type { Counters, FailOpenReason, JournalFault, LogFields } from './index.ts';

/** What was counted since the start. */
export interface CountersSnapshot {
  readonly failOpen: Readonly<Partial<Record<FailOpenReason, number>>>;
  readonly interceptedCalls: readonly {
    readonly method: string;
    readonly code: number;
    readonly count: number;
    /** Sum of the durations. */
    readonly milliseconds: number;
  }[];
  readonly protocolErrors: Readonly<Record<string, number>>;
  readonly journalFaults: Readonly<Partial<Record<JournalFault, number>>>;
}

/** Labels are from small sets; should one not be, it stays small here. */
const MOST_LABELS = 256;
const OTHER = 'other';

/** Counters in memory. */
export function createCounters(): Counters & { snapshot(): CountersSnapshot } {
  const failOpen = new Map<FailOpenReason, number>();
  const calls = new Map<string, { method: string; code: number; count: number; milliseconds: number }>();
  const protocolErrors = new Map<string, number>();
  const journalFaults = new Map<JournalFault, number>();

  return {
    failOpen: (reason) => void failOpen.set(reason, (failOpen.get(reason) ?? 0) + 1),
    interceptedCall(method, code, milliseconds) {
      const wanted = `${method} ${code}`;
      const fits = calls.has(wanted) || calls.size < MOST_LABELS;
      const key = fits ? wanted : `${OTHER} ${code}`;
      const call = calls.get(key) ?? { method: fits ? method : OTHER, code, count: 0, milliseconds: 0 };
      calls.set(key, call);
      call.count += 1;
      call.milliseconds += milliseconds;
    },
    protocolError(code) {
      const key = protocolErrors.has(code) || protocolErrors.size < MOST_LABELS ? code : OTHER;
      protocolErrors.set(key, (protocolErrors.get(key) ?? 0) + 1);
    },
    journalFault: (fault) => void journalFaults.set(fault, (journalFaults.get(fault) ?? 0) + 1),
    snapshot: () => ({
      failOpen: Object.fromEntries(failOpen),
      interceptedCalls: [...calls.values()].map((call) => ({ ...call })),
      protocolErrors: Object.fromEntries(protocolErrors),
      journalFaults: Object.fromEntries(journalFaults),
    }),
  };
}

/** What was counted, as fields of one log line. */
export function countersFields(snapshot: CountersSnapshot): LogFields {
  const pairs = (counts: Readonly<Record<string, number>>): string[] =>
    Object.entries(counts).map(([name, count]) => `${name} ${count}`);
  return {
    failOpen: pairs(snapshot.failOpen),
    protocolErrors: pairs(snapshot.protocolErrors),
    journalFaults: pairs(snapshot.journalFaults),
    interceptedCalls: snapshot.interceptedCalls.map(
      ({ method, code, count, milliseconds }) => `${method} code ${code}: ${count}, ${Math.round(milliseconds)} ms`,
    ),
  };
}
