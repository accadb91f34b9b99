import { defineConfig } from 'vitest/config';

/** The tests that npm run mutation holds the mutants against: those of the planner, the conversions and the parsers. */
export default defineConfig({
  test: {
    include: [
      'test/sandbox/plan*.test.ts',
      'test/sandbox/wish.test.ts',
      'test/cgroups/{conversions,cpu,memory,proc}.test.ts',
      'test/tmpfs/{mountinfo,quantity,sizes}.test.ts',
    ],
    // A mutant that lives on dies within tens of cases or not at all, and there are over a thousand mutants.
    env: { CRI_RESIZE_SHIM_PROPERTY_CASES: '60' },
  },
});
