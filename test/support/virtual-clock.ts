import type { Clock } from '../../src/core/clock.ts';
import { START } from './fake-clock.ts';

interface Timer {
  readonly at: number;
  readonly number: number;
  readonly action: () => void;
}

/**
 * A clock that jumps to its next timer as soon as nothing is left to do, so that hours pass within seconds. For code
 * whose only waits are timers of this clock: it does no input and no output.
 */
export class VirtualClock implements Clock {
  #passed = 0;
  #number = 0;
  /** A heap: each timer is not after its children. */
  readonly #timers: Timer[] = [];
  readonly #cancelled = new Set<number>();

  now(): number {
    return START.now + this.#passed;
  }

  wallTime(): number {
    return START.wallTime + this.#passed;
  }

  /** Milliseconds since the clock was made. */
  get passed(): number {
    return this.#passed;
  }

  after(ms: number, action: () => void): () => void {
    const timer = { at: this.#passed + ms, number: (this.#number += 1), action };
    this.#push(timer);
    return () => void this.#cancelled.add(timer.number);
  }

  /** Waits in virtual time. */
  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => void this.after(ms, resolve));
  }

  /** Lets time pass until the condition holds. Rejects if that takes more than `limitMs`, or if no timer is left. */
  async until(holds: () => boolean, limitMs: number): Promise<void> {
    const limit = this.#passed + limitMs;
    for (;;) {
      // The work that the last timer has started runs to its next wait.
      await new Promise((resolve) => setImmediate(resolve));
      if (holds()) return;
      const timer = this.#pop();
      if (timer === undefined) throw new Error('nothing is left to wait for');
      if (this.#cancelled.delete(timer.number)) continue;
      if (timer.at > limit) throw new Error(`not within ${limitMs / 1000} s: ${String(holds)}`);
      this.#passed = timer.at;
      timer.action();
    }
  }

  /** Lets an amount of time pass. */
  async pass(ms: number): Promise<void> {
    let isOver = false;
    this.after(ms, () => (isOver = true));
    await this.until(() => isOver, ms);
  }

  #push(timer: Timer): void {
    const heap = this.#timers;
    let at = heap.push(timer) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (isBefore(heap[parent]!, timer)) break;
      [heap[at], heap[parent]] = [heap[parent]!, timer];
      at = parent;
    }
  }

  #pop(): Timer | undefined {
    const heap = this.#timers;
    const [first] = heap;
    const last = heap.pop();
    if (first === undefined || last === undefined || heap.length === 0) return first;
    heap[0] = last;
    for (let at = 0; ; ) {
      const [left, right] = [2 * at + 1, 2 * at + 2];
      let least = at;
      if (left < heap.length && isBefore(heap[left]!, heap[least]!)) least = left;
      if (right < heap.length && isBefore(heap[right]!, heap[least]!)) least = right;
      if (least === at) return first;
      [heap[at], heap[least]] = [heap[least]!, heap[at]!];
      at = least;
    }
  }
}

const isBefore = (one: Timer, other: Timer): boolean =>
  one.at < other.at || (one.at === other.at && one.number < other.number);
