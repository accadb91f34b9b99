import { describe, expect, test } from 'vitest';
import type { PodEvent } from '../../../src/kubernetes/annotations/events.ts';
import { ResizeEvents } from '../../../src/kubernetes/annotations/resize-events.ts';
import type { Requester } from '../../../src/sandbox/history/history-entry.ts';
import type { PodSpec } from '../../../src/sandbox/pods/pod-spec.ts';
import type { ResizeEvent } from '../../../src/sandbox/queue/resize-table.ts';
import { web } from '../../support/resize/fake-resizes.ts';

type State = Extract<ResizeEvent['what'], { kind: 'state' }>;

const change = { value: 'container app, memory.max', from: '67108864', to: '134217728' };
const state = (name: State['state'], more: Partial<State> = {}): State => ({
  kind: 'state',
  state: name,
  reason: undefined,
  message: undefined,
  changes: [change],
  isRolledBack: false,
  count: 1,
  ...more,
});
const step = { kind: 'step', record: { step: { kind: 'runtime' }, at: 0, ms: 1 } } as const;
const full = { reason: 'NODE_FULL', message: '100Mi is free' };

/** Posts the events of resizes of the pod {@link web}, which the API server knows. */
class Posted {
  readonly posted: PodEvent[] = [];
  isKnown = true;
  readonly #events = new ResizeEvents({
    specs: { of: () => (this.isKnown ? ({} as PodSpec) : undefined) },
    post: (event) => void this.posted.push(event),
  });

  reach(what: ResizeEvent['what'], kind: Requester['kind'] = 'api', resize = 'r1'): void {
    this.#events.reached({ resize, pod: web, requester: { kind }, at: 5, what });
  }

  get reasons(): readonly string[] {
    return this.posted.map(({ reason }) => reason);
  }
}

describe('the events of a resize', () => {
  test('KEP-1287: an admitted resize has the events ResizeStarted and ResizeCompleted, with its changes', () => {
    const events = new Posted();
    for (const what of [state('Proposed'), state('InProgress'), step, step, state('Completed')]) events.reach(what);
    expect(events.posted).toEqual([
      {
        pod: web,
        reason: 'ResizeStarted',
        note: 'the resize was admitted, and its first step is applied (resize r1)',
        at: 5,
      },
      {
        pod: web,
        reason: 'ResizeCompleted',
        note: 'the pod is resized: container app, memory.max 67108864 -> 134217728 (resize r1)',
        at: 5,
      },
    ]);
  });

  test.each<[string, State, string, string]>([
    ['ResizeDeferred if it does not fit yet', state('Deferred', full), 'ResizeDeferred', 'not resized yet: NODE_FULL'],
    [
      'ResizeInfeasible if it is rejected',
      state('Infeasible', { reason: 'EXCEEDS_NODE', message: 'too much' }),
      'ResizeInfeasible',
      'not resized: EXCEEDS_NODE: too much',
    ],
    [
      'ResizeError if it was rolled back',
      state('Infeasible', { reason: 'CGROUP_WRITE_FAILED', message: 'no', isRolledBack: true }),
      'ResizeError',
      'not resized: CGROUP_WRITE_FAILED: no',
    ],
    [
      'ResizeError if it could not be rolled back',
      state('Infeasible', { reason: 'UNDO_FAILED', message: 'no' }),
      'ResizeError',
      'not resized: UNDO_FAILED: no',
    ],
  ])('KEP-1287: a resize has the event %s', (_, what, reason, note) => {
    const events = new Posted();
    events.reach(what);
    expect(events.posted).toMatchObject([{ reason, note: expect.stringContaining(note) as string }]);
  });

  test('KEP-1287: a deferred resize has one event for each reason, however often it is retried', () => {
    const events = new Posted();
    const used = { reason: 'MEMORY_NOT_RECLAIMABLE', message: '40Mi are in use' };
    for (const why of [full, full, used, full]) {
      events.reach(state('InProgress'));
      events.reach(state('Deferred', why));
    }
    expect(events.reasons).toEqual(['ResizeDeferred', 'ResizeDeferred']);
    events.reach(state('Deferred', full), 'api', 'r2');
    expect(events.reasons).toHaveLength(3);
  });

  test('an update by crictl or an agent has events, and its repeated failures have one', () => {
    const events = new Posted();
    events.reach(step, 'cri-client');
    events.reach(state('Completed'), 'cri-client');
    events.reach(state('Infeasible'), 'cri-client', 'r2');
    events.reach(state('Infeasible', { count: 2 }), 'cri-client', 'r3');
    expect(events.reasons).toEqual(['ResizeStarted', 'ResizeCompleted', 'ResizeInfeasible']);
  });

  test.each<Requester['kind']>(['kubelet', 'annotation', 'shim'])('a resize by %s has no further events', (kind) => {
    const events = new Posted();
    for (const what of [step, state('Completed'), state('Deferred', full)]) events.reach(what, kind);
    expect(events.posted).toEqual([]);
  });

  test('a pod that the API server does not know has no events', () => {
    const events = new Posted();
    events.isKnown = false;
    events.reach(state('Completed'));
    expect(events.posted).toEqual([]);
  });

  test('an event lists at most eight changes', () => {
    const events = new Posted();
    events.reach(state('Completed', { changes: Array.from({ length: 10 }, () => change) }));
    expect(events.posted[0]?.note.match(/ -> /g)).toHaveLength(8);
    expect(events.posted[0]?.note).toContain('and 2 more');
  });
});
