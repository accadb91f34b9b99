import type { Log, ReadinessCheck } from '../../observe/index.ts';
import { kindOf, wordsOf } from '../client/index.ts';

/**
 * Tracks whether the API server can be reached, for readiness and the log: one line when the kind of failure changes,
 * and one when it is back.
 */
export class Reach {
  readonly #log: Log;
  readonly #nodeName: string;
  #trouble: { readonly kind: string; readonly says: string } | undefined;
  #isWatching = false;

  constructor(log: Log, nodeName: string) {
    this.#log = log;
    this.#nodeName = nodeName;
  }

  reached(): void {
    if (this.#trouble !== undefined || !this.#isWatching)
      this.#log.info({ node: this.#nodeName }, 'watch of pod annotations started');
    this.#trouble = undefined;
    this.#isWatching = true;
  }

  failed(error: unknown): void {
    const trouble = { kind: kindOf(error), says: wordsOf(error) };
    if (trouble.kind !== this.#trouble?.kind)
      this.#log.warn({ node: this.#nodeName, error: trouble.says }, 'watch of pod annotations failed; retrying');
    this.#trouble = trouble;
  }

  check(): ReadinessCheck {
    const name = 'kubernetes';
    if (this.#trouble !== undefined) return { name, ready: false, says: `pods are not watched: ${this.#trouble.says}` };
    if (!this.#isWatching) return { name, ready: false, says: 'pods are not watched yet' };
    return { name, ready: true, says: `pod annotations of node ${this.#nodeName} are watched` };
  }
}
