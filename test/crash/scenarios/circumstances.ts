import { closeSync, existsSync, openSync, renameSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import type { RunningPod } from '../../support/cri/pod.ts';
import type { LogLine } from '../../support/cri/shim.ts';
import { Tenant, cgroupOf } from '../../support/e2e/tenant.ts';
import type { Record } from '../crashing-shim.ts';
import { MiB, type Stage } from '../scenario.ts';

/** What a pod is in when it is resized. */

type Preparation = (stage: Stage) => Promise<undefined>;

/** Files in the container's memory, which nothing reclaims. */
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

/** A folder of the machine outside, so its pages are page cache; all else in the node lies in a tmpfs, whose pages are not. */
const file = join(process.env['NODE_OUT'] ?? '', 'cached');
const tenants = new Map<string, Tenant>();

/** A process in the container's cgroup, for {@link holdPageCache}. */
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

/** Reads so much of a file that is all holes. */
export const holdPageCache =
  (mebibytes: number): Preparation =>
  async ({ pod }) => {
    if (!existsSync(file)) closeSync(openSync(file, 'w'));
    truncateSync(file, mebibytes * MiB);
    await tenants.get(pod.uid)?.run('read', file);
    return undefined;
  };

const stateOf = ({ pod }: Stage, name: string): string => `/run/containerd/runc/k8s.io/${pod.id(name)}/state.json`;

/** runc does not find the container any more: each of its updates fails. */
export function hideFromRunc(stage: Stage, name: string): void {
  renameSync(stateOf(stage, name), `${stateOf(stage, name)}.hidden`);
}

export function showToRunc(stage: Stage, name: string): void {
  const hidden = `${stateOf(stage, name)}.hidden`;
  if (existsSync(hidden)) renameSync(hidden, stateOf(stage, name));
}

/**
 * Until a deferred resize has been carried out and is not kept any more, or the shim has ended. Not until its file has gone: the
 * shim is not done with that then.
 * @param id which one; the one that an earlier shim has left, if it has, without
 */
export async function noneDeferred({ shim }: Stage, id?: unknown): Promise<void> {
  const isKept = ({ resizes = [] }: Record): boolean => resizes.length > 0;
  if (id === undefined && !shim.beganWith.some(isKept)) return;
  const isDone = ({ msg, resize, state }: LogLine): boolean =>
    msg === 'deferred resize retried' && state === 'Completed' && resize === (id ?? resize);
  await shim.logged(isDone);
}
