import { type CancelSignal, untilAborted } from './waiting.ts';

/** One running call that all callers share. Its signal aborts when the last leaves. The next starts another. */
export class SharedCall<Result> {
  #running: Running<Result> | undefined;

  constructor(private readonly make: (signal: AbortSignal) => Promise<Result>) {}

  /** Waits for the call. Rejects with the signal's reason if it aborts first. Without one, no caller leaves. */
  async run(signal?: CancelSignal): Promise<Result> {
    signal?.throwIfAborted();
    const running = (this.#running ??= this.#start());
    running.callers += 1;
    try {
      return await untilAborted(running.result, signal);
    } finally {
      running.callers -= 1;
      if (running.callers === 0) this.#stop(running);
    }
  }

  #start(): Running<Result> {
    const abort = new AbortController();
    const running = { result: this.make(abort.signal), abort, callers: 0 };
    const ended = (): void => this.#forget(running);
    running.result.then(ended, ended);
    return running;
  }

  #stop(running: Running<Result>): void {
    this.#forget(running);
    running.abort.abort();
  }

  #forget(running: Running<Result>): void {
    if (this.#running === running) this.#running = undefined;
  }
}

interface Running<Result> {
  readonly result: Promise<Result>;
  readonly abort: AbortController;
  callers: number;
}

/**
 * A value that is loaded on first use. Concurrent uses share one load. After a failed load, the next use tries again.
 * (Node remembers the error of a module that fails during its evaluation.)
 */
export class Lazy<Value> {
  #loading: Promise<Value> | undefined;

  constructor(private readonly load: () => Promise<Value>) {}

  /** Returns the value. Rejects as the load does. */
  async get(): Promise<Value> {
    const loading = (this.#loading ??= this.load());
    try {
      return await loading;
    } catch (error) {
      // Another caller that waited for the same load may have started the next one.
      if (this.#loading === loading) this.#loading = undefined;
      throw error;
    }
  }

  /** Returns a used value once its load has ended; undefined if it is unused or the load fails. Never rejects. */
  async ifUsed(): Promise<Value | undefined> {
    return this.#loading?.catch(() => undefined);
  }
}
