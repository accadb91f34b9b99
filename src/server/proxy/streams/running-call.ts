import type { HeaderField } from '../../http2/index.ts';
import type { HandledCall } from '../interception.ts';

const NOTHING = Buffer.alloc(0);

/** A call that is handled in the proxy, from its headers to its end. */
export class RunningCall implements HandledCall {
  request: Buffer = NOTHING;
  /** It has ended without an answer. */
  cancelled = false;
  /** Its answer has been passed to the stream. */
  answered = false;
  /** Ends it at its deadline. */
  timer: NodeJS.Timeout | undefined = undefined;
  #abort: AbortController | undefined;

  /** @param deadline by the connection's clock */
  constructor(
    readonly path: string,
    readonly headers: readonly HeaderField[],
    readonly deadline: number,
  ) {}

  /** Made when it is asked for: most handlers do not listen. */
  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      if (this.cancelled) this.#abort.abort();
    }
    return this.#abort.signal;
  }

  cancel(): void {
    if (this.cancelled) return;
    this.cancelled = true;
    this.#abort?.abort();
  }
}
