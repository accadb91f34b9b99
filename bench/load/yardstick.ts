import { createHash } from 'node:crypto';
import { MiB } from '../../src/core/quantities/sizes.ts';

/**
 * CPU times of two runs are comparable only on equal processors: the machines may differ, and in a virtual machine or
 * User Mode Linux, processor time that other programs take counts as ours. Therefore each run also measures a fixed
 * piece of work, and CPU times are divided by that time.
 */
export class Yardstick {
  readonly #bytes = Buffer.alloc(16 * MiB);
  #sum = 0;
  #count = 0;

  /** Does the piece of work, which takes some 10 ms. */
  measure(): void {
    const before = process.cpuUsage();
    createHash('sha256').update(this.#bytes).digest();
    const { user, system } = process.cpuUsage(before);
    this.#sum += (user + system) / 1000;
    this.#count += 1;
  }

  /**
   * Returns the CPU time of the piece of work, in milliseconds: the mean, because the unit of CPU time may be as long
   * as the work. Throws RangeError if it was never measured.
   */
  result(): number {
    if (!(this.#sum > 0)) throw new RangeError('the yardstick was not measured');
    return this.#sum / this.#count;
  }
}
