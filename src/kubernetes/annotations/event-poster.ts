import { type Log, oncePerKey } from '../../observe/index.ts';
import { type NodeEvent, type PodEvent, eventBody, namespaceOf } from './events.ts';
import { wait } from '../pods/index.ts';
import { type Api, ApiRefusal, kindOf, readText, wordsOf } from '../client/index.ts';
import type { Clock } from '../../core/concurrency/index.ts';
import { retryDelay } from '../../resize/index.ts';
import { isDnsLabel } from '../../tmpfs/index.ts';

export interface PosterParts {
  readonly api: Api;
  readonly nodeName: string;
  readonly clock: Clock;
  /** 0 to 1, as Math.random. */
  readonly random: () => number;
  readonly log: Log;
}

/** Maximum number of pending events; the oldest are dropped first. */
const MOST_WAITING = 256;
const IDLE_MS = 10_000;
const LONGEST_ANSWER = 64 * 1024;

/** Posts events one after the other, in order. Retries, except for events that the server rejects permanently. */
export class EventPoster {
  readonly #parts: PosterParts;
  readonly #isFirst = oncePerKey(64);
  #waiting: (PodEvent | NodeEvent)[] = [];
  #wake: () => void = () => undefined;

  constructor(parts: PosterParts) {
    this.#parts = parts;
  }

  post(event: PodEvent | NodeEvent): void {
    // It becomes part of the path of the request: `..` would lead to another one.
    if (!isDnsLabel(namespaceOf(event))) {
      this.#dropped('namespace', 'the namespace of the pod is not a valid name');
      return;
    }
    this.#waiting.push(event);
    if (this.#waiting.length > MOST_WAITING) {
      this.#waiting.shift();
      this.#dropped('too many', 'too many pending events');
    }
    this.#wake();
  }

  /** Runs until aborted, then drops pending events. Never rejects. */
  async run(signal: AbortSignal): Promise<void> {
    signal.addEventListener('abort', () => this.#wake());
    for (let failures = 0; !signal.aborted; ) {
      const [event] = this.#waiting;
      if (event === undefined) {
        await new Promise<void>((resolve) => (this.#wake = resolve));
        continue;
      }
      const error = await this.#try(event, signal);
      if (error === undefined || isFinal(error)) {
        failures = 0;
        // It may have been dropped in the meantime because there were too many.
        this.#waiting = this.#waiting.filter((other) => other !== event);
        if (error !== undefined) this.#dropped(kindOf(error), wordsOf(error));
      } else {
        failures += 1;
        const asked = error instanceof ApiRefusal ? error.retryAfterMs : 0;
        await wait(this.#parts.clock, Math.max(asked, retryDelay(failures, this.#parts.random())), signal);
      }
    }
  }

  async #try(event: PodEvent | NodeEvent, signal: AbortSignal): Promise<unknown> {
    const path = `/apis/events.k8s.io/v1/namespaces/${encodeURIComponent(namespaceOf(event))}/events`;
    const body = eventBody(event, this.#parts.nodeName);
    try {
      const response = await this.#parts.api({ method: 'POST', path, body, idleMs: IDLE_MS, signal });
      // The event exists even if the response cannot be read.
      await readText(response, LONGEST_ANSWER).catch(() => undefined);
      return undefined;
    } catch (error) {
      return error;
    }
  }

  #dropped(kind: string, error: string): void {
    if (this.#isFirst(kind)) this.#parts.log.warn({ error }, 'pod events dropped');
  }
}

/** Whether a retry is useless. Not for 401, since credentials may be replaced, and 429. */
const isFinal = (error: unknown): boolean =>
  error instanceof ApiRefusal && error.status < 500 && error.status !== 401 && error.status !== 429;
