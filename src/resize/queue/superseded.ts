import type { NewestValues, PodField, Writer } from '../history/index.ts';
import { fieldsOf, withoutFields } from './requests/index.ts';
import type { ActiveResize, ResizeTable } from './resize-table.ts';

export interface SupersededParts {
  readonly table: ResizeTable;
  readonly newest: NewestValues;
}

/** Returns a resize as the request that sets its fields. */
export const writerOf = ({ resize, order }: ActiveResize): Writer => ({ arrival: order, text: `resize ${resize.id}` });

/**
 * Removes the fields that newer requests have set: those that were applied, and resizes that are deferred. Returns one of these
 * requests when no field is left, and undefined otherwise.
 */
export function removeSuperseded({ table, newest }: SupersededParts, active: ActiveResize): Writer | undefined {
  const { asked, pod } = active.resize;
  const deferred = table
    .activeOfPod(pod.sandboxId)
    .filter(({ order, resize }) => order > active.order && resize.state === 'Deferred');
  const newerWriter = (field: PodField): Writer | undefined => {
    const other = deferred.find(({ resize }) => fieldsOf(resize.asked).has(field));
    return other === undefined ? newest.newerWriter(pod.sandboxId, field, active.order) : writerOf(other);
  };
  const [newer] = [...fieldsOf(asked)].flatMap((field) => newerWriter(field) ?? []);
  if (newer === undefined) return undefined;
  const left = withoutFields(asked, (field) => newerWriter(field) !== undefined);
  if (left === undefined) return newer;
  active.resize = { ...active.resize, asked: left };
  return undefined;
}

/** Whether a newer resize that has not ended sets a field of this one. */
export function hasNewer(table: ResizeTable, active: ActiveResize): boolean {
  const fields = fieldsOf(active.resize.asked);
  return table
    .activeOfPod(active.resize.pod.sandboxId)
    .some(
      ({ order, resize }) => order > active.order && [...fieldsOf(resize.asked)].some((field) => fields.has(field)),
    );
}
