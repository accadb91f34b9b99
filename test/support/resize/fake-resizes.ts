import { EventEmitter, once } from 'node:events';
import { noLog } from '../../../src/core/observe/interfaces.ts';
import { bytes, microseconds } from '../../../src/core/quantities/numbers.ts';
import type { ResizeHistory } from '../../../src/sandbox/history/history.ts';
import type { NewestValues } from '../../../src/sandbox/history/newest-values.ts';
import type { ResizeOutcome, ResizePod, ResizeState } from '../../../src/sandbox/plan/resize-request.ts';
import type { StepRecord } from '../../../src/sandbox/plan/step.ts';
import type { PodIdentity } from '../../../src/sandbox/pods/pod-identity.ts';
import type { PodState } from '../../../src/sandbox/pods/pod-state.ts';
import type { ResizeRecord, ResizeStore } from '../../../src/sandbox/queue/records.ts';
import type { RequestedPod, RequestedResources } from '../../../src/sandbox/queue/request.ts';
import type { Resize } from '../../../src/sandbox/queue/resize-table.ts';
import { type ResizeBounds, Resizes } from '../../../src/sandbox/queue/resizes.ts';
import type { RankOf } from '../../../src/sandbox/queue/retries.ts';
import type { KubeletRequests } from '../../../src/sandbox/queue/stored-pod-records.ts';
import type { FakeClock } from '../fake-clock.ts';

/** Fakes of `resizePod`, of the store and of the clock, which tests control. */

export const web: PodIdentity = { sandboxId: 'a'.repeat(64), uid: 'uid-web', namespace: 'default', name: 'web' };
export const db: PodIdentity = { sandboxId: 'b'.repeat(64), uid: 'uid-db', namespace: 'default', name: 'db' };

const keep: RequestedResources = { limits: { cpu: '', memory: '' }, requests: { cpu: '', memory: '' } };
export const resources = (limits: object, requests: object = {}): RequestedResources => ({
  limits: { ...keep.limits, ...limits },
  requests: { ...keep.requests, ...requests },
});
export const asked = (memory: string, request = ''): RequestedPod => ({
  pod: keep,
  containers: { app: resources({ memory }, { memory: request }) },
  volumes: {},
});

const state = (memory: number): PodState => ({
  memory: bytes(memory),
  cpu: { quota: microseconds(50_000), period: microseconds(100_000) },
  weight: undefined,
  overhead: { memory: bytes(0), cpu: { quota: microseconds(0), period: microseconds(100_000) } },
  containers: [
    {
      id: 'c'.repeat(64),
      memory: bytes(memory),
      cpu: { quota: 'max', period: microseconds(100_000) },
    },
  ],
  volumes: [{ name: 'cache', size: bytes(4096) }],
});
export const stepRecord: StepRecord = {
  step: { kind: 'pod-memory', from: bytes(1 << 28), to: bytes(1 << 27) },
  at: 1.5,
  ms: 0.25,
};
export const outcome: ResizeOutcome = { steps: [stepRecord], before: state(1 << 28), after: state(1 << 27) };

type Arguments = Parameters<ResizePod>;

/** One call of `resizePod`, in progress until the test ends it. */
export interface CoreCall {
  readonly sandboxId: Arguments[0];
  readonly desired: Arguments[1];
  readonly options: Arguments[2];
  succeed(withOutcome?: ResizeOutcome): void;
  fail(error: unknown): void;
}

export class FakeCore {
  /** Calls that the test has not taken yet. */
  readonly #calls: CoreCall[] = [];
  readonly #events = new EventEmitter();

  readonly resizePod: ResizePod = (sandboxId, desired, options) =>
    new Promise((resolve, reject) => {
      const succeed = (withOutcome = outcome): void => {
        if (!options.dryRun) options.onStep?.(stepRecord);
        resolve(withOutcome);
      };
      this.#calls.push({ sandboxId, desired, options, succeed, fail: reject });
      this.#events.emit('call');
    });

  /** Returns the next call. */
  async next(): Promise<CoreCall> {
    for (;;) {
      const call = this.#calls.shift();
      if (call !== undefined) return call;
      await once(this.#events, 'call');
    }
  }

  get waiting(): number {
    return this.#calls.length;
  }
}

/** A store in memory, which holds records as JSON text. */
export class FakeStore implements ResizeStore {
  readonly records = new Map<string, string>();
  fault: Error | undefined;

  persist(podUid: string, records: readonly ResizeRecord[]): Promise<void> {
    if (this.fault !== undefined) return Promise.reject(this.fault);
    if (records.length === 0) this.records.delete(podUid);
    else this.records.set(podUid, JSON.stringify(records));
    return Promise.resolve();
  }

  restore(): Promise<{ podUid: string; records: unknown[] }[]> {
    return Promise.resolve(
      [...this.records].map(([podUid, text]) => ({ podUid, records: JSON.parse(text) as unknown[] })),
    );
  }
}

export function createResizes(parts: {
  core: FakeCore;
  clock: FakeClock;
  store: FakeStore;
  bounds?: Partial<ResizeBounds>;
  newest?: NewestValues;
  history?: ResizeHistory;
  rankOf?: RankOf;
  newestSandbox?: (podUid: string) => PodIdentity | undefined;
  kubeletRequests?: KubeletRequests;
}): Resizes {
  const { core, bounds = {}, ...others } = parts;
  return new Resizes({ ...others, resizePod: core.resizePod, random: () => 0.5, log: noLog, bounds });
}

/** Resolves when a resize is in a state. */
export async function reached(resizes: Resizes, id: string, wanted: ResizeState): Promise<Resize> {
  const watch = resizes.watch();
  try {
    if (resizes.get(id).state === wanted) return resizes.get(id);
    for await (const { resize, what } of watch) {
      if (resize === id && what.kind === 'state' && what.state === wanted) return resizes.get(id);
    }
    throw new Error(`the watch ended before ${wanted}`);
  } finally {
    watch.end();
  }
}
