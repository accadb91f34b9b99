import { describe, expect, test, vi } from 'vitest';
import { Reason, ShimError } from '../../../src/core/errors.ts';
import { Code } from '../../../src/core/grpc.ts';
import type { LogFields } from '../../../src/core/observe/interfaces.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { historyBounds, ResizeHistory } from '../../../src/sandbox/history/history.ts';
import { criRequester, type HistoryEntry } from '../../../src/sandbox/history/history-entry.ts';
import { db, web } from '../../support/resize/fake-resizes.ts';

const kubelet = criRequester({ pid: 812, name: 'kubelet' });
const crictl = criRequester({ pid: 4711, name: 'crictl' });
const lower = (mebibytes: number) => ({
  kind: 'pod-memory' as const,
  from: bytes(512 * MiB),
  to: bytes(mebibytes * MiB),
});
const tooLow = new ShimError(Code.FAILED_PRECONDITION, Reason.MEMORY_NOT_RECLAIMABLE, '90Mi are in use');

/** A request that lowers a pod's memory limit and is completed. */
function complete(history: ResizeHistory, mebibytes: number, pod = web): void {
  const request = history.request(pod, crictl);
  request.begins([lower(mebibytes)]);
  request.completed();
}

const states = (entries: readonly HistoryEntry[]): string[] => entries.map(({ state }) => state);

describe('the history of resizes', () => {
  test('the history has the requester, the changes and the outcome of each resize, with the newest of a pod first', () => {
    const history = new ResizeHistory();
    complete(history, 256);
    const refused = history.request(web, kubelet);
    refused.asks({ pod: { memory: bytes(64 * MiB) } }, { pod: { memory: bytes(256 * MiB) } });
    refused.failed(tooLow);
    expect(history.ofPod(web.sandboxId)).toMatchObject([
      {
        requester: { kind: 'kubelet', process: { pid: 812 } },
        state: 'Deferred',
        reason: 'MEMORY_NOT_RECLAIMABLE',
        message: '90Mi are in use',
        changes: [{ value: 'pod memory', from: '256Mi', to: '64Mi' }],
        isRolledBack: false,
      },
      {
        requester: { kind: 'cri-client', process: { name: 'crictl' } },
        state: 'Completed',
        reason: undefined,
        changes: [{ value: 'pod memory', from: '512Mi', to: '256Mi' }],
      },
    ]);
  });

  test('the history lists the newest resize first even if the system time is set back, including those in progress', () => {
    const now = vi.spyOn(Date, 'now');
    try {
      const history = new ResizeHistory();
      now.mockReturnValue(2_000_000_000_000);
      complete(history, 256);
      now.mockReturnValue(1_000_000_000_000);
      complete(history, 128);
      const refused = history.request(web, crictl);
      refused.begins([lower(64)]);
      refused.failed(tooLow);
      expect(states(history.ofPod(web.sandboxId))).toEqual(['Infeasible', 'Completed', 'Completed']);
      expect(history.ofPod(web.sandboxId)[1]).toMatchObject({ changes: [{ to: '128Mi' }] });
      history.request(web, crictl).begins([lower(32)]);
      expect(states(history.all)).toEqual(['Completed', 'Completed', 'Infeasible', 'InProgress']);
      expect(history.ofPod(web.sandboxId)[0]).toMatchObject({ state: 'InProgress' });
    } finally {
      now.mockRestore();
    }
  });

  test('a rejected resize of a client other than kubelet is Infeasible, since only kubelet retries', () => {
    const history = new ResizeHistory();
    history.request(web, crictl).failed(tooLow);
    expect(states(history.all)).toEqual(['Infeasible']);
  });

  test('the history does not store a request that changes nothing', () => {
    const history = new ResizeHistory();
    const request = history.request(web, kubelet);
    request.asks({ pod: { memory: bytes(MiB) } }, { pod: { memory: bytes(MiB) } });
    request.begins([]);
    request.completed();
    expect(history.all).toEqual([]);
  });

  test('a history entry is marked as rolled back only if the rollback succeeded', () => {
    const history = new ResizeHistory();
    for (const reason of [Reason.RECLAIM_TIMEOUT, Reason.UNDO_FAILED]) {
      const request = history.request(web, crictl);
      request.begins([lower(128)]);
      expect(states(history.ofPod(web.sandboxId)).at(0)).toBe('InProgress');
      request.stepped({ step: lower(128), at: 0, ms: 1 });
      request.failed(new ShimError(Code.DEADLINE_EXCEEDED, reason, 'too late'));
    }
    expect(history.all.map(({ reason, isRolledBack }) => [reason, isRolledBack])).toEqual([
      ['RECLAIM_TIMEOUT', true],
      ['UNDO_FAILED', false],
    ]);
  });

  test('the history counts a failure that kubelet repeats, and starts a new entry after another result', () => {
    const history = new ResizeHistory();
    for (let time = 0; time < 5; time += 1) history.request(web, kubelet).failed(tooLow);
    complete(history, 256);
    history.request(web, kubelet).failed(tooLow);
    expect(history.all.map(({ state, count }) => [state, count])).toEqual([
      ['Deferred', 5],
      ['Completed', 1],
      ['Deferred', 1],
    ]);
  });

  test('listeners get the end of each request with the id of its start, including a repeated failure', () => {
    const history = new ResizeHistory();
    const events: (readonly [id: string, state: string])[] = [];
    history.onRequest(({ id, state }) => events.push([id, state]));
    for (let time = 0; time < 2; time += 1) {
      const request = history.request(web, kubelet);
      request.begins([lower(128)]);
      request.failed(tooLow);
    }
    const [first, second] = [events[0]?.[0], events[2]?.[0]];
    expect(first).not.toBe(second);
    expect(events).toEqual([
      [first, 'InProgress'],
      [first, 'Deferred'],
      [second, 'InProgress'],
      [second, 'Deferred'],
    ]);
    expect(history.all).toMatchObject([{ id: first, count: 2 }]);
  });

  test('the history lists a waiting resize after resizes that have ended since its last update', () => {
    const history = new ResizeHistory();
    complete(history, 128, db);
    const [ended] = history.all;
    if (ended === undefined) throw new Error('nothing is stored');
    const by = { pod: web, requester: { kind: 'api' as const } };
    const waits = { ...ended, ...by, id: 'waits', state: 'Deferred' as const };
    history.put(waits);
    complete(history, 256);
    expect(states(history.ofPod(web.sandboxId))).toEqual(['Completed', 'Deferred']);
    history.put(waits);
    expect(states(history.ofPod(web.sandboxId))).toEqual(['Deferred', 'Completed']);
  });

  test('the history drops the oldest entries beyond its limits per node and per pod', () => {
    const history = new ResizeHistory({ bounds: { node: 4, pod: 2 } });
    complete(history, 1, db);
    for (let mebibytes = 10; mebibytes < 20; mebibytes += 1) complete(history, mebibytes);
    const tos = (entries: readonly HistoryEntry[]) => entries.map(({ changes }) => changes[0]?.to);
    expect(tos(history.ofPod(web.sandboxId))).toEqual(['19Mi', '18Mi']);
    // Many resizes of one pod do not remove those of another pod.
    expect(tos(history.ofPod(db.sandboxId))).toEqual(['1Mi']);
    expect(history.all).toHaveLength(5);
    history.forget(db.sandboxId);
    expect(tos(history.all)).toEqual(['16Mi', '17Mi', '18Mi', '19Mi']);
  });

  test('the history stores no entries by pod for a pod that is gone', () => {
    const history = new ResizeHistory({ isKnown: () => false });
    complete(history, 1);
    expect([history.ofPod(web.sandboxId).length, history.all.length]).toEqual([0, 1]);
  });

  test('the history limits the changes of one resize and the length of messages and values', () => {
    const history = new ResizeHistory();
    const request = history.request(web, crictl);
    const keys = Array.from({ length: historyBounds.changes + 10 }, (_, index) => `io.max${index}`);
    request.begins(keys.map((key) => ({ kind: 'pod-unified', key, from: '', to: 'x'.repeat(10_000) })));
    request.failed(new ShimError(Code.INTERNAL, Reason.BACKEND_FAILED, 'm'.repeat(10_000)));
    const [entry] = history.all;
    expect(entry?.changes).toHaveLength(historyBounds.changes);
    expect(entry?.changes[0]?.to).toHaveLength(128);
    expect(entry?.message).toHaveLength(historyBounds.text);
  });

  test('the history logs the end of each resize with the namespace and name of its pod', () => {
    const lines: LogFields[] = [];
    const add = (fields: LogFields): void => void lines.push(fields);
    const history = new ResizeHistory({ log: { debug: add, info: add, warn: add, error: add } });
    complete(history, 256);
    expect(lines).toMatchObject([
      {
        namespace: web.namespace,
        name: web.name,
        by: 'crictl (4711)',
        state: 'Completed',
        changes: ['pod memory 512Mi -> 256Mi'],
      },
    ]);
  });

  test('the history finds an entry by the first characters of its id', () => {
    const history = new ResizeHistory();
    complete(history, 256);
    const [entry] = history.all;
    expect(history.find(entry?.id.slice(0, 8) ?? '')).toBe(entry);
    expect([history.find(''), history.find('zz')]).toEqual([undefined, undefined]);
  });
});

test.each([
  ['kubelet', 'kubelet'],
  ['k3s-server', 'kubelet'],
  ['kubelite', 'kubelet'],
  ['crictl', 'cri-client'],
  ['not-kubelet', 'cri-client'],
  [undefined, 'cri-client'],
])('the process %s counts as %s', (name, kind) => {
  expect(criRequester({ pid: 1, name }).kind).toBe(kind);
});
