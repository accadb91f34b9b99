import { eventOf } from '../client/index.ts';
import type { PodIdentity } from '../../sandbox/index.ts';

/** Reasons of pod events. Documented in docs/volumes.md unless noted otherwise. */
export type EventReason =
  | 'VolumeResized'
  | 'VolumeResizeDeferred'
  | 'VolumeResizeInfeasible'
  | 'VolumeResizeCanceled'
  | 'VolumeSizeExceedsMemoryLimit'
  /** Documented in docs/foresight.md. */
  | 'MemoryDecreaseDeferred';

export interface PodEvent {
  readonly pod: Pick<PodIdentity, 'uid' | 'namespace' | 'name'>;
  readonly reason: EventReason;
  readonly note: string;
  /** Milliseconds since the epoch. */
  readonly at: number;
}

const TYPES: Readonly<Record<EventReason, 'Normal' | 'Warning'>> = {
  VolumeResized: 'Normal',
  VolumeResizeCanceled: 'Normal',
  VolumeResizeDeferred: 'Warning',
  VolumeResizeInfeasible: 'Warning',
  VolumeSizeExceedsMemoryLimit: 'Warning',
  MemoryDecreaseDeferred: 'Warning',
};

/** Returns the event for events.k8s.io/v1. */
export function eventBody({ pod, reason, note, at }: PodEvent, nodeName: string): object {
  const { uid, namespace, name } = pod;
  return eventOf({
    namespace,
    name,
    reporter: CONTROLLER,
    instance: nodeName,
    regarding: { apiVersion: 'v1', kind: 'Pod', namespace, name, uid },
    action: reason === 'MemoryDecreaseDeferred' ? 'LowerMemory' : 'ResizeVolume',
    type: TYPES[reason],
    reason,
    note,
    at,
  });
}

export const CONTROLLER = 'cri-resize-shim';
