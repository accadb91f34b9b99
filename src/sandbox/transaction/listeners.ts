/** Transaction listeners in addition to pod outcomes: counters, the log, and the page of recent resizes. */

import type { CgroupTree } from '../../cgroups/index.ts';
import { type Bytes, type Counters, type Log, messageOf, ShimError } from '../../core/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { RecentResizes, Recording } from '../history/recent-resizes.ts';
import type { PlannedTransaction, TransactionListener } from '../history/transaction-events.ts';
import { isVolumeInUse } from '../plan/failures.ts';
import { describeStep, type StepRecord } from '../plan/step.ts';
import { podCgroup } from '../pods/read-pod.ts';
import type { Registry } from '../pods/registry.ts';
import { excesses } from '../volumes/policies.ts';

/** Counts steps, rollbacks, and volumes that cannot shrink. */
export const countTransactions = (counters: Counters): TransactionListener => ({
  rejected(error) {
    if (isVolumeInUse(error)) counters.remount('shrink', 'refused');
  },
  stepped: (_transaction, { step, ms }) => counters.step(step.kind, ms),
  rolledBack: (_transaction, _error, isLeft) => counters.undo(isLeft ? 'failed' : 'undone'),
});

/** Logs what transactions have changed. */
export function logTransactions(log: Log): TransactionListener {
  const starts = new WeakMap<PlannedTransaction, number>();
  return {
    begins: (transaction) => void starts.set(transaction, performance.now()),
    skipped({ pod }, step, error) {
      const fields = { pod: pod.sandboxId, step: describeStep(step), error: messageOf(error) };
      log.warn(fields, 'step after the update skipped');
    },
    ends(transaction, records, error) {
      if (error !== undefined || records.every(({ step }) => step.kind === 'runtime')) return;
      const { pod, before, target } = transaction;
      for (const { volume, size, memoryLimit } of excesses(before, target)) {
        const fields = { pod: pod.sandboxId, uid: pod.metadata.uid, volume, size, memoryLimit };
        log.warn(fields, 'volume larger than the memory limit of its pod');
      }
      const ms = round(performance.now() - (starts.get(transaction) ?? 0));
      log.info({ ...podFields(pod), ms, steps: records.map(forLog) }, 'pod resized');
    },
  };
}

/** Records transactions for the page of recent resizes. */
export function recordTransactions(recent: RecentResizes, registry: Registry, tree: CgroupTree): TransactionListener {
  const recordings = new WeakMap<PlannedTransaction, Recording>();
  return {
    begins(transaction) {
      const { pod, before, asked } = transaction;
      const names = new Map(registry.containersOf(pod.sandboxId).map(({ containerId, name }) => [containerId, name]));
      const used = (): Bytes | undefined => usageOrUndefined(tree, pod);
      recordings.set(transaction, recent.begin({ pod, before, asked, names, used }));
    },
    stepped: (transaction, record) => recordings.get(transaction)?.step(record),
    applied: (transaction) => recordings.get(transaction)?.end('done'),
    rolledBack(transaction, error, isLeft) {
      recordings.get(transaction)?.end(isLeft ? 'undo failed' : 'undone', error);
    },
  };
}

/** Reads memory.current for the page. A failed read must not fail a resize. */
function usageOrUndefined(tree: CgroupTree, pod: PodDescription): Bytes | undefined {
  try {
    return tree.readMemoryCurrent(podCgroup(pod));
  } catch (error) {
    if (error instanceof ShimError) return undefined;
    throw error;
  }
}

/** The log fields of a pod. */
const podFields = ({ sandboxId: pod, metadata: { uid, namespace, name } }: PodDescription) => ({
  pod,
  uid,
  namespace,
  name,
});

const forLog = ({ step, at, ms }: StepRecord): Readonly<Record<string, string | number>> => ({
  step: describeStep(step),
  atMs: round(at),
  ms: round(ms),
});

const round = (milliseconds: number): number => Math.round(milliseconds * 1000) / 1000;
