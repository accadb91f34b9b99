import type { Api } from '../api.ts';

interface Named {
  readonly metadata: { readonly name: string };
}

/** The newest state of all objects of a list, from one watch. */
export class ApiWatch<Watched extends Named> {
  readonly #objects = new Map<string, Watched>();
  readonly #waiting = new Set<() => void>();
  readonly #ending = new AbortController();
  #fault: Error | undefined;

  constructor(api: Api, path: string) {
    void this.#follow(api, path);
  }

  async #follow(api: Api, path: string): Promise<void> {
    try {
      for await (const { type, object } of api.watch<Watched>(path, this.#ending.signal)) {
        if (type === 'ERROR') throw new Error(`the watch of ${path} has failed: ${JSON.stringify(object)}`);
        if (type === 'DELETED') this.#objects.delete(object.metadata.name);
        else this.#objects.set(object.metadata.name, object);
        this.#wake();
      }
      throw new Error(`the watch of ${path} has ended`);
    } catch (error) {
      this.#fault = error instanceof Error ? error : new Error(String(error));
      this.#wake();
    }
  }

  #wake(): void {
    for (const wake of this.#waiting) wake();
  }

  get(name: string): Watched | undefined {
    return this.#objects.get(name);
  }

  get all(): readonly Watched[] {
    return [...this.#objects.values()];
  }

  /** Resolves with true once the condition holds, or with false after the given time. */
  async until(isSo: () => boolean, milliseconds: number): Promise<boolean> {
    const deadline = AbortSignal.timeout(milliseconds);
    while (!isSo()) {
      if (this.#fault !== undefined) throw this.#fault;
      if (deadline.aborted) return false;
      await this.#change(deadline);
    }
    return true;
  }

  #change(deadline: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        this.#waiting.delete(done);
        deadline.removeEventListener('abort', done);
        resolve();
      };
      this.#waiting.add(done);
      deadline.addEventListener('abort', done);
    });
  }

  end(): void {
    this.#ending.abort();
  }
}
