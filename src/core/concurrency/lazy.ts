/**
 * A value that is loaded for its first use. Concurrent uses share one load. After a load that fails, the next use loads again; Node
 * remembers the error of a module that fails while it is evaluated.
 */
export class Lazy<Value> {
  readonly #load: () => Promise<Value>;
  #loading: Promise<Value> | undefined;

  constructor(load: () => Promise<Value>) {
    this.#load = load;
  }

  /** Returns the value. Rejects as the load does. */
  async get(): Promise<Value> {
    const loading = (this.#loading ??= this.#load());
    try {
      return await loading;
    } catch (error) {
      // Others that waited for the same load may have started the next one.
      if (this.#loading === loading) this.#loading = undefined;
      throw error;
    }
  }

  /** Returns the value if it has been used, once its load has ended; undefined if it has not, or the load fails. Never rejects. */
  async ifUsed(): Promise<Value | undefined> {
    return this.#loading?.catch(() => undefined);
  }
}
