import { closeSync, existsSync, openSync, renameSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { RunningPod } from '../../support/cri/pod.ts';
import type { LogLine } from '../../support/cri/shim.ts';
import { cgroupOf, Tenant } from '../../support/e2e/tenant.ts';
import type { Record } from '../crashing-shim.ts';
import { type Stage } from '../scenario.ts';

/** Preparations of a pod before its resize. */

type Preparation = (stage: Stage) => Promise<undefined>;

/** Writes files to the container's memory, which cannot be reclaimed. */
export const holdMemory =
  (name: string, mebibytes: number): Preparation =>
  async ({ direct, pod }) => {
    await direct.exec(pod.id(name), 'dd', 'if=/dev/zero', 'of=/dev/shm/held', 'bs=1M', `count=${mebibytes}`);
    return undefined;
  };

export const freeMemory =
  (name: string): Preparation =>
  async ({ direct, pod }) => {
    await direct.exec(pod.id(name), 'rm', '-f', '/dev/shm/held');
    return undefined;
  };

/** A file outside the node, so its pages are page cache: all other files of the node are in a tmpfs. */
const file = join(process.env['NODE_OUT'] ?? '', 'cached');
const tenants = new Map<string, Tenant>();

/** Starts a process in the container's cgroup, for {@link holdPageCache}. */
export const cachedFile =
  (name: string): Preparation =>
  async ({ pod }) => {
    tenants.set(pod.uid, await Tenant.in(cgroupOf(pod.cgroup, pod.id(name))));
    return undefined;
  };

export const endTenant = async ({ uid }: RunningPod): Promise<void> => {
  await tenants.get(uid)?.end();
  tenants.delete(uid);
};

/** Reads a sparse file of this size into page cache. */
export const holdPageCache =
  (mebibytes: number): Preparation =>
  async ({ pod }) => {
    if (!existsSync(file)) closeSync(openSync(file, 'w'));
    truncateSync(file, mebibytes * MiB);
    await tenants.get(pod.uid)?.run('read', file);
    return undefined;
  };

const stateOf = ({ pod }: Stage, name: string): string => `/run/containerd/runc/k8s.io/${pod.id(name)}/state.json`;

/** Hides the container from runc, so that each of its updates fails. */
export function hideFromRunc(stage: Stage, name: string): void {
  renameSync(stateOf(stage, name), `${stateOf(stage, name)}.hidden`);
}

export function showToRunc(stage: Stage, name: string): void {
  const hidden = `${stateOf(stage, name)}.hidden`;
  if (existsSync(hidden)) renameSync(hidden, stateOf(stage, name));
}

/**
 * Waits until a deferred resize has completed and is not stored any more, or the shim has ended. It reads the log,
 * since the shim is still busy when the file is removed.
 * @param id the id of the resize; without it, the one that an earlier shim has stored, if any
 */
export async function noneDeferred({ shim }: Stage, id?: unknown): Promise<void> {
  const hasResizes = ({ resizes = [] }: Record): boolean => resizes.some(({ kind }) => kind === 'deferred');
  if (id === undefined && !shim.recordsAtStart.some(hasResizes)) return;
  const isDone = ({ msg, resize, state }: LogLine): boolean =>
    msg === 'deferred resize retried' && state === 'Completed' && resize === (id ?? resize);
  await shim.logged(isDone);
}
