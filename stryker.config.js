import { readdirSync } from 'node:fs';
import { join } from 'node:path';

const planner = 'src/sandbox/plan';

/**
 * npm run mutation: each mutant is a small mistake in the planner, a conversion or a parser, and a test has to see it. Fails
 * under 90 %, of all and of each file (scripts/mutation.mjs).
 *
 * @type {import('@stryker-mutator/api/core').PartialStrykerOptions & { readonly mutate: string[] }}
 */
export default {
  mutate: [
    ...readdirSync(planner).map((file) => join(planner, file)),
    'src/sandbox/wish.ts',
    'src/sandbox/journal/record.ts',
    'src/sandbox/journal/volume-record.ts',
    'src/sandbox/foresight/checkpoint.ts',
    'src/sandbox/resizes/amounts.ts',
    'src/sandbox/resizes/asked.ts',
    'src/cgroups/conversions.ts',
    'src/cgroups/cpu.ts',
    'src/cgroups/memory.ts',
    'src/cgroups/proc.ts',
    'src/cgroups/unified.ts',
    'src/cgroups/units.ts',
    'src/tmpfs/mountinfo.ts',
    'src/tmpfs/sizes.ts',
    'src/units/quantity.ts',
    'src/config/duration.ts',
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
