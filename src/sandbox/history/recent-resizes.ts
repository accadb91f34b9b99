import { type Bytes, messageOf, wallTime } from '../../core/index.ts';
import type { PodDescription } from '../../runtime/index.ts';
import type { Step, StepRecord } from '../plan/step.ts';
import type { PodState } from '../pods/pod-state.ts';

/** A resize that was completed or rolled back, as the page of recent resizes shows it. */
export interface RecentResize {
  readonly namespace: string;
  readonly name: string;
  readonly sandboxId: string;
  /** In milliseconds since the epoch. */
  readonly at: number;
  /** Duration from the first step to the end, rollback included. */
  readonly ms: number;
  readonly outcome: 'done' | 'undone' | 'undo failed';
  /** Why it was rolled back. */
  readonly message: string | undefined;
  readonly before: PodState;
  /** The pod's memory usage before the first step; undefined if it could not be read. */
  readonly usedBefore: Bytes | undefined;
  readonly steps: readonly RecentStep[];
  /** Names of containers by id. */
  readonly names: ReadonlyMap<string, string>;
}

export interface RecentStep {
  /** The step. For the caller's own call: the changes of that call. */
  readonly step: Step;
  /** When the step ended, in milliseconds from the start. */
  readonly doneAt: number;
  readonly ms: number;
  /** The pod's memory usage at that time. */
  readonly used: Bytes | undefined;
}

/** Records a resize while it runs. */
export interface Recording {
  step(record: StepRecord): void;
  end(outcome: RecentResize['outcome'], error?: unknown): void;
}

export interface Recorded {
  readonly pod: PodDescription;
  readonly before: PodState;
  /** The changes of the caller's own call; undefined if none. */
  readonly asked: Step | undefined;
  readonly names: ReadonlyMap<string, string>;
  readonly used: () => Bytes | undefined;
}

/** The last resizes of all pods, in memory. Present only if the HTTP server that shows them is enabled. */
export class RecentResizes {
  readonly #resizes: RecentResize[] = [];
  readonly #max: number;

  constructor(max = 100) {
    this.#max = max;
  }

  /** The recorded resizes, newest first. */
  get all(): readonly RecentResize[] {
    return this.#resizes;
  }

  begin({ pod, before, asked, names, used }: Recorded): Recording {
    const { namespace, name } = pod.metadata;
    const [at, start, usedBefore] = [wallTime(), performance.now(), used()];
    const steps: RecentStep[] = [];
    return {
      step({ step, ms, at: from }) {
        const shown = step.kind === 'runtime' ? asked : step;
        if (shown !== undefined) steps.push({ step: shown, doneAt: from + ms, ms, used: used() });
      },
      end: (outcome, error) => {
        // Calls that change nothing, of which kubelet makes many, are not recorded.
        if (steps.length === 0 && outcome === 'done') return;
        const message = error === undefined ? undefined : messageOf(error);
        const ms = performance.now() - start;
        const { sandboxId } = pod;
        this.#resizes.unshift({
          namespace,
          name,
          sandboxId,
          at,
          ms,
          outcome,
          message,
          before,
          usedBefore,
          steps,
          names,
        });
        this.#resizes.splice(this.#max);
      },
    };
  }
}
