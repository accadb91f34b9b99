import { configDefaults, defineConfig } from 'vitest/config';

/** The tests that the suite `mutation` holds the mutants against: those of the planner, the conversions and the parsers. */
export default defineConfig({
  test: {
    include: [
      'test/sandbox/plan/*.test.ts',
      'test/sandbox/queue/{request,resizes.order}.test.ts',
      'test/sandbox/admission/*.test.ts',
      'test/sandbox/values/*.test.ts',
      'test/sandbox/journal/record*.test.ts',
      'test/kubelet/{checkpoint,memory-formulas*,resource-managers}.test.ts',
      'test/sandbox/foresight/pending-swap.test.ts',
      'test/sandbox/pods/*.test.ts',
      'test/cgroups/{proc,systemd-units}.test.ts',
      'test/cgroups/values/*.test.ts',
      'test/tmpfs/{mountinfo,sizes}.test.ts',
      'test/core/quantities/kubernetes.test.ts',
      'test/core/config/duration.test.ts',
      'test/mutation/loads.test.ts',
    ],
    // They measure time.
    exclude: [...configDefaults.exclude, '**/*.speed.test.ts'],
    // As in npm test: a slow machine must not pass for a test that has noticed something. Stryker has its own limit.
    testTimeout: 60_000,
    setupFiles: ['test/support/seed.ts'],
    // A mutant that lives on dies within tens of cases or not at all, and there are over two thousand mutants.
    env: { CRI_RESIZE_SHIM_PROPERTY_CASES: '60', CRI_RESIZE_SHIM_PROPERTY_SEED: '2026' },
  },
});
