import { rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { containerFolder, podCgroupFolder } from '../../support/cri/pod-cgroup.ts';
import { Tenant } from '../../support/e2e/tenant.ts';
import type { Pod } from '../table/pod.ts';
import { VOLUME } from './objects.ts';
import type { Scenario, Use } from './scenarios.ts';

/** The processes that use the memory of one pod, and their files. */
export class MemoryUsers {
  readonly #tenants: Tenant[] = [];
  readonly #files: string[] = [];
  /** @param folder the folder of the files, on a disk of the host */
  private constructor(
    readonly pod: Pod,
    readonly folder: string,
  ) {}

  /** Resolves once all memory is in use. */
  static async of(pod: Pod, { containers }: Scenario, folder: string): Promise<MemoryUsers> {
    const users = new MemoryUsers(pod, folder);
    for (const { name, uses } of containers) for (const use of uses) await users.#add(name, use);
    return users;
  }

  async #add(container: string, use: Use): Promise<void> {
    const { containerStatuses = [] } = this.pod.status;
    const id =
      containerStatuses.find(({ name }) => name === container)?.containerID?.replace('containerd://', '') ?? '';
    const tenant = await Tenant.in(containerFolder(cgroupOf(this.pod), id));
    this.#tenants.push(tenant);
    await tenant.run(...this.#command(use));
  }

  #command({ kind, mebibytes }: Use): (string | number)[] {
    const bytes = mebibytes * MiB;
    switch (kind) {
      case 'anonymous':
        return ['hold', bytes];
      case 'cold cache':
        return ['read', this.#file(bytes)];
      case 'hot cache':
        return ['reread', this.#file(bytes)];
      case 'dirty cache':
        return ['rewrite', this.#file(bytes), bytes];
      case 'volume':
        return [
          'dirty',
          `/var/lib/kubelet/pods/${this.pod.metadata.uid}/volumes/kubernetes.io~empty-dir/${VOLUME}/file`,
          bytes,
        ];
    }
  }

  /** Each pod has its own files, because page cache is charged to the first cgroup that reads it. */
  #file(bytes: number): string {
    const file = join(this.folder, `${this.pod.metadata.name}-${this.#files.length}`);
    writeFileSync(file, '');
    truncateSync(file, bytes);
    this.#files.push(file);
    return file;
  }

  async end(): Promise<void> {
    for (const tenant of this.#tenants.splice(0)) await tenant.end();
    for (const file of this.#files.splice(0)) rmSync(file, { force: true });
  }
}

/** The folder of a pod's cgroup. */
export const cgroupOf = ({ metadata, status }: Pod): string =>
  podCgroupFolder(metadata.uid, status.qosClass.toLowerCase() as 'burstable');
