import { type Backend, isUnimplemented } from './backend.ts';
import { describeCgroupDriver } from './description.ts';
import { CgroupDriverName } from './messages.ts';

type Name = keyof typeof CgroupDriverName;

type Asked = Pick<Backend, 'runtime'>;

/**
 * The cgroup driver that the backend is set up for: by RuntimeConfig, or by the configuration in its verbose Status where it does
 * not have that (containerd before 2.0). Undefined when that does not show it. Rejects as the calls do.
 */
export async function askCgroupDriver(backend: Asked): Promise<Name | undefined> {
  try {
    const { linux } = await backend.runtime('RuntimeConfig', {});
    const number = linux?.cgroup_driver;
    return (Object.keys(CgroupDriverName) as Name[]).find((name) => CgroupDriverName[name] === number);
  } catch (error) {
    if (!isUnimplemented(error)) throw error;
    return describeCgroupDriver(await backend.runtime('Status', { verbose: true }));
  }
}

/** The same, kept until the backend is another one. */
export class BackendCgroupDriver {
  readonly #backend: Asked;
  #asked: Promise<Name | undefined> | undefined;
  #last: Name | undefined;

  constructor(backend: Asked) {
    this.#backend = backend;
  }

  /** At each connection: it may have been started anew with another configuration. */
  reconnected(): void {
    this.#asked = undefined;
  }

  /** What it last said, while it does not answer. Undefined when it never has. Never rejects. */
  async name(): Promise<Name | undefined> {
    this.#asked ??= askCgroupDriver(this.#backend);
    try {
      this.#last = await this.#asked;
    } catch {
      // Asked again the next time.
      this.#asked = undefined;
    }
    return this.#last;
  }
}
