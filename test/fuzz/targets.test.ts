import { expect, test } from 'vitest';
import { inProcess, inProcessNames } from './in-process/targets.ts';

// The suite `fuzz` plays more inputs. To repeat a failed input, use `--target NAME --seed 20250101 --only INDEX`.
test.each(inProcessNames.filter((name) => name !== 'proxy'))(
  '2,000 mutated inputs cause documented errors only: %s',
  async (name) => {
    const target = inProcess[name].open();
    try {
      for (let index = 0; index < 2000; index += 1) {
        try {
          await target.play(20_250_101, index);
        } catch (error) {
          throw new Error(`input ${index}`, { cause: error });
        }
      }
      // Many inputs are still parsed, so that not all of them fail at the first byte.
      expect(Number(/^(\d+) parsed/.exec(target.summary())?.[1])).toBeGreaterThan(100);
    } finally {
      target.close();
    }
  },
);
