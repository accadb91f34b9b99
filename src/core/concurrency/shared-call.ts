import { untilAborted } from './until-aborted.ts';

/**
 * One running call that all callers share. When the last caller has left, its signal aborts, and the next caller starts another one.
 */
export class SharedCall<Result> {
  readonly #make: (signal: AbortSignal) => Promise<Result>;
  #running: Running<Result> | undefined;

  constructor(make: (signal: AbortSignal) => Promise<Result>) {
    this.#make = make;
  }

  /** Waits for the call. Rejects with the signal's reason if it aborts before. Without a signal, the caller never leaves. */
  async run(signal?: AbortSignal): Promise<Result> {
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
    const running = { result: this.#make(abort.signal), abort, callers: 0 };
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
