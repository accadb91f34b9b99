import { messageOf } from '../../core/errors/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { Bytes } from '../../core/quantities/index.ts';
import type { PodState } from '../../sandbox/index.ts';
import type { Step, StepRecord } from '../model/index.ts';

/** A resize that was carried out, or begun and taken back: for people who look. */
export interface RecentResize {
  readonly namespace: string;
  readonly name: string;
  readonly sandboxId: string;
  /** In milliseconds since the epoch. */
  readonly at: number;
  /** From its first step to its end, undoing included. */
  readonly ms: number;
  readonly outcome: 'done' | 'undone' | 'undo failed';
  /** Why it was taken back. */
  readonly message: string | undefined;
  readonly before: PodState;
  /** The pod's use of memory before the first step; undefined where it could not be read. */
  readonly usedBefore: Bytes | undefined;
  readonly steps: readonly RecentStep[];
  /** Names of containers by id. */
  readonly names: ReadonlyMap<string, string>;
}

export interface RecentStep {
  /** The caller's own call is what it changes. */
  readonly step: Step;
  /** When it was done, in milliseconds from the start. */
  readonly doneAt: number;
  readonly ms: number;
  /** The pod's use of memory then. */
  readonly used: Bytes | undefined;
}

/** What is told of a resize while it is carried out. */
export interface Recording {
  step(record: StepRecord): void;
  end(outcome: RecentResize['outcome'], error?: unknown): void;
}

export interface Recorded {
  readonly pod: PodDescription;
  readonly before: PodState;
  /** What the caller's own call changes, where it changes anything. */
  readonly asked: Step | undefined;
  readonly names: ReadonlyMap<string, string>;
  readonly used: () => Bytes | undefined;
}

/** The last resizes of all pods. In memory, and kept only where somebody can look at them. */
export class RecentResizes {
  readonly #kept: RecentResize[] = [];
  readonly #most: number;

  constructor(most = 100) {
    this.#most = most;
  }

  /** The newest first. */
  get all(): readonly RecentResize[] {
    return this.#kept;
  }

  begin({ pod, before, asked, names, used }: Recorded): Recording {
    const { namespace, name } = pod.metadata;
    const [at, start, usedBefore] = [Date.now(), performance.now(), used()];
    const steps: RecentStep[] = [];
    return {
      step({ step, ms, at: from }) {
        const shown = step.kind === 'runtime' ? asked : step;
        if (shown !== undefined) steps.push({ step: shown, doneAt: from + ms, ms, used: used() });
      },
      end: (outcome, error) => {
        // A call that changes nothing (kubelet makes many) is nothing to see.
        if (steps.length === 0 && outcome === 'done') return;
        const message = error === undefined ? undefined : messageOf(error);
        const about = { namespace, name, sandboxId: pod.sandboxId, at, ms: performance.now() - start };
        this.#kept.unshift({ ...about, outcome, message, before, usedBefore, steps, names });
        this.#kept.splice(this.#most);
      },
    };
  }
}
