import { randomBytes } from 'node:crypto';
import type { PodIdentity } from '../sandbox/index.ts';

/** What is told of a resize. Documented in docs/volumes.md, where nothing else is said. */
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

export const CONTROLLER = 'cri-resize-shim';
/** The API server takes no more (pkg/apis/core/validation, NoteLengthLimit and its neighbours). */
const LONGEST_NOTE = 1024;
const LONGEST_INSTANCE = 128;
/** Of 253 that a name may have, less a point and what makes it unique. */
const LONGEST_PREFIX = 220;

/**
 * As events.k8s.io/v1 has it: the API for what is written since 1.19, which takes a time of microseconds and says who
 * reports. Each is created once and never changed, so the right to create is all that this needs.
 */
export function eventBody({ pod, reason, note, at }: PodEvent, nodeName: string): object {
  const { uid, namespace, name } = pod;
  const prefix = name.slice(0, LONGEST_PREFIX).replace(/[^a-z0-9]+$/, '');
  return {
    apiVersion: 'events.k8s.io/v1',
    kind: 'Event',
    metadata: { namespace, name: `${prefix}.${randomBytes(8).toString('hex')}` },
    eventTime: `${new Date(at).toISOString().slice(0, -1)}000Z`,
    reportingController: CONTROLLER,
    reportingInstance: nodeName.slice(0, LONGEST_INSTANCE),
    action: reason === 'MemoryDecreaseDeferred' ? 'LowerMemory' : 'ResizeVolume',
    type: TYPES[reason],
    reason,
    regarding: { apiVersion: 'v1', kind: 'Pod', namespace, name, uid },
    note: cut(note),
  };
}

/** To so many bytes of UTF-8: that is what the server counts. */
function cut(note: string): string {
  const bytes = Buffer.from(note);
  if (bytes.length <= LONGEST_NOTE) return note;
  return `${bytes
    .subarray(0, LONGEST_NOTE - 6)
    .toString()
    .replace(/\uFFFD+$/, '')}...`;
}
