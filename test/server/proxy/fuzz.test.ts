import { expect, test } from 'vitest';
import { emptyTally, play } from '../../fuzz/engine.ts';

// The long version is `npm run fuzz`. An input that fails is seen again with `--seed 20250101 --only INDEX`.
test('20,000 mutated conversations end in no crash, and leave nothing behind', async () => {
  const tally = emptyTally();
  for (let index = 0; index < 20_000; index += 1) {
    await play(20_250_101, index, tally).catch((error: unknown) => {
      throw new Error(`input ${index}`, { cause: error });
    });
  }
  // They get somewhere: not all die at the first frame, and every side meets errors.
  expect(tally.inputs).toBe(20_000);
  expect(tally.survived).toBeGreaterThan(2000);
  expect(tally.amended).toBeGreaterThan(5000);
  for (const count of [tally.clientErrors, tally.backendErrors, tally.localErrors]) expect(count).toBeGreaterThan(500);
});
