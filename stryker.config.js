/**
 * npm run mutation: each mutant is a small mistake in the planner, a conversion or a parser, and a test has to see it. Fails
 * under 90 %.
 *
 * @type {import('@stryker-mutator/api/core').PartialStrykerOptions}
 */
export default {
  mutate: [
    'src/sandbox/plan/*.ts',
    'src/sandbox/wish.ts',
    'src/cgroups/conversions.ts',
    'src/cgroups/cpu.ts',
    'src/cgroups/memory.ts',
    'src/cgroups/proc.ts',
    'src/tmpfs/mountinfo.ts',
    'src/tmpfs/quantity.ts',
    'src/tmpfs/sizes.ts',
  ],
  testRunner: 'vitest',
  vitest: { configFile: 'vitest.mutation.config.ts', related: false },
  plugins: ['@stryker-mutator/vitest-runner'],
  ignorePatterns: ['/dist', '/bench', '/demo', '/docs', '/systemd', '/test/conformance', '/test/e2e', '/test/node'],
  concurrency: 2,
  coverageAnalysis: 'perTest',
  reporters: ['clear-text', 'progress-append-only'],
  timeoutMS: 20_000,
  clearTextReporter: { allowColor: false, logTests: false, reportTests: false },
  allowConsoleColors: false,
  thresholds: { high: 95, low: 90, break: 90 },
  tempDirName: '.stryker-tmp',
  cleanTempDir: 'always',
};
