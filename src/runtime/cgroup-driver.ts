import type { Backend } from './backend.ts';
import { isUnimplemented } from './backend-errors.ts';
import { describeCgroupDriver } from './description.ts';
import { CgroupDriverName } from './messages.ts';

type Name = keyof typeof CgroupDriverName;

type BackendCalls = Pick<Backend, 'runtime'>;

/**
 * Returns the cgroup driver that the backend is configured for, from RuntimeConfig, or from the configuration in its
 * verbose Status if it lacks that call (containerd before 2.0). Undefined if neither has it. Rejects as the calls do.
 */
export async function queryCgroupDriver(backend: BackendCalls): Promise<Name | undefined> {
  try {
    const { linux } = await backend.runtime('RuntimeConfig', {});
    const number = linux?.cgroup_driver;
    return (Object.keys(CgroupDriverName) as Name[]).find((name) => CgroupDriverName[name] === number);
  } catch (error) {
    if (!isUnimplemented(error)) throw error;
    return describeCgroupDriver(await backend.runtime('Status', { verbose: true }));
  }
}

/** The cgroup driver of the backend, cached until the next connection. */
export class BackendCgroupDriver {
  #answer: Promise<Name | undefined> | undefined;
  #last: Name | undefined;

  constructor(private readonly backend: BackendCalls) {}

  /** Call at each connection: the backend may have been restarted with another configuration. */
  reconnected(): void {
    this.#answer = undefined;
  }

  /** Returns the last known driver if the backend does not answer, and undefined if it never has. Never rejects. */
  async name(): Promise<Name | undefined> {
    this.#answer ??= queryCgroupDriver(this.backend);
    try {
      this.#last = await this.#answer;
    } catch {
      // The next caller asks again.
      this.#answer = undefined;
    }
    return this.#last;
  }
}
