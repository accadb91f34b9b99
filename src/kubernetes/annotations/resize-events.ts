import { oncePerKey } from '../../core/index.ts';
import type { PodSpecs, ResizeEvent, ValueChange } from '../../sandbox/index.ts';
import type { EventReason, PodEvent } from './events.ts';

export interface ResizeEventsOptions {
  readonly specs: PodSpecs;
  readonly post: (event: PodEvent) => void;
}

/** Maximum number of resizes whose posted events are known. */
const MOST_KNOWN = 2048;
/** Maximum number of changes in the note of an event. */
const MOST_CHANGES = 8;

/**
 * Posts the events of KEP-1287 for the resizes that kubelet does not request: those of the resize API, updates by
 * crictl and agents, and changed size limits of volumes. kubelet posts the events of its own resizes (kubelet
 * pkg/kubelet/events/event.go), and a resize by annotations has events of its own. Posts each event once for a resize,
 * however often the resize is retried. Only for pods that the API server knows: others have no events.
 */
export class ResizeEvents {
  readonly #isFirst = oncePerKey(MOST_KNOWN);

  constructor(private readonly options: ResizeEventsOptions) {}

  /** Handles a new state or a step of a resize. */
  reached({ resize, pod, requester: { kind }, at, what }: ResizeEvent): void {
    if (kind === 'kubelet' || kind === 'annotation' || kind === 'shim') return;
    // A request that fails again like before counts up its first event.
    if (what.kind === 'state' && what.count > 1) return;
    const found = what.kind === 'step' ? STARTED : eventOfState(what);
    if (found === undefined || this.options.specs.of(pod) === undefined) return;
    const { reason, note, key = '' } = found;
    if (this.#isFirst(`${resize} ${reason} ${key}`))
      this.options.post({ pod, reason, note: `${note} (resize ${resize})`, at });
  }
}

interface Found {
  readonly reason: EventReason;
  readonly note: string;
  /** Distinguishes events with the same reason. */
  readonly key?: string;
}

const STARTED: Found = { reason: 'ResizeStarted', note: 'the resize was admitted, and its first step is applied' };

function eventOfState({
  state,
  reason = '',
  message = '',
  changes,
  isRolledBack,
}: Extract<ResizeEvent['what'], { kind: 'state' }>): Found | undefined {
  switch (state) {
    case 'Completed':
      return { reason: 'ResizeCompleted', note: `the pod is resized${listOf(changes)}` };
    case 'Deferred':
      // A resize of an earlier process has had its event.
      if (reason === 'RESTARTED') return undefined;
      return { reason: 'ResizeDeferred', note: `the pod is not resized yet: ${reason}: ${message}`, key: reason };
    case 'Infeasible': {
      // KEP-1287: infeasible before the first step, an error after it.
      const found = isRolledBack || reason === 'UNDO_FAILED' ? 'ResizeError' : 'ResizeInfeasible';
      return { reason: found, note: `the pod is not resized: ${reason}: ${message}` };
    }
    case 'Canceled':
    case 'InProgress':
    case 'Proposed':
      return undefined;
  }
}

function listOf(changes: readonly ValueChange[]): string {
  const texts = changes
    .slice(0, MOST_CHANGES)
    .map(({ value, from, to }) => `${value} ${from === '' ? '?' : from} -> ${to}`);
  const more = changes.length > MOST_CHANGES ? [`and ${changes.length - MOST_CHANGES} more`] : [];
  return texts.length === 0 ? '' : `: ${[...texts, ...more].join(', ')}`;
}
