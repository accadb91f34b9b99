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

/** An event about the node itself. */
export interface NodeEvent {
  readonly node: string;
  /** Documented in docs/bypass.md and docs/kubernetes.md. */
  readonly reason: 'ShimBypassed' | 'ShimDrift' | 'ShimDriftEnded';
  readonly note: string;
  /** Milliseconds since the epoch. */
  readonly at: number;
}

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

/** The namespace of an event. Those of nodes, which have none, are in `default`. */
export const namespaceOf = (event: PodEvent | NodeEvent): string => ('pod' in event ? event.pod.namespace : 'default');

/** Returns the event for events.k8s.io/v1. */
export const eventBody = (event: PodEvent | NodeEvent, nodeName: string): object =>
  'pod' in event ? podEventBody(event, nodeName) : nodeEventBody(event);

function nodeEventBody({ node, reason, note, at }: NodeEvent): object {
  return eventOf({
    namespace: 'default',
    name: node,
    reporter: CONTROLLER,
    instance: node,
    // As kubelet's own events of its node: kubectl describe node finds them by this uid.
    regarding: { apiVersion: 'v1', kind: 'Node', name: node, uid: node },
    action: reason === 'ShimBypassed' ? 'Bypass' : 'Watch',
    type: reason === 'ShimDriftEnded' ? 'Normal' : 'Warning',
    reason,
    note,
    at,
  });
}

function podEventBody({ pod, reason, note, at }: PodEvent, nodeName: string): object {
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
