import { expect, test } from 'vitest';
import { emptyTally, play } from '../../fuzz/proxy/engine.ts';

// The suite `fuzz` plays more inputs. To repeat a failed input, use `--target proxy --seed 20250101 --only INDEX`.
test('20,000 mutated conversations cause no crash and leak nothing', async () => {
  const tally = emptyTally();
  for (let index = 0; index < 20_000; index += 1) {
    await play(20_250_101, index, tally).catch((error: unknown) => {
      throw new Error(`input ${index}`, { cause: error });
    });
  }
  // The inputs reach relevant states: not all fail at the first frame, and each side has protocol errors.
  expect(tally.inputs).toBe(20_000);
  expect(tally.survived).toBeGreaterThan(2000);
  expect(tally.amended).toBeGreaterThan(5000);
  expect(tally.handled).toBeGreaterThan(1000);
  expect(tally.delayed).toBeGreaterThan(4500);
  for (const count of [tally.clientErrors, tally.backendErrors, tally.localErrors]) expect(count).toBeGreaterThan(500);
});
