import { readdirSync } from 'node:fs';
import { join } from 'node:path';

const planner = 'src/resize/plan';

/**
 * The suite `mutation`: each mutant is a small mistake in the planner, the declared pod, admission, a conversion or a parser, and a test has
 * to see it. Fails under 90 %, of all and of each file (tools/mutation.mjs).
 *
 * @type {import('@stryker-mutator/api/core').PartialStrykerOptions & { readonly mutate: string[] }}
 */
export default {
  mutate: [
    ...readdirSync(planner).map((file) => join(planner, file)),
    'src/resize/model/amounts.ts',
    'src/resize/admission/resizable-containers.ts',
    'src/resize/admission/parse-limits.ts',
    'src/resize/admission/memory-in-use.ts',
    'src/resize/journal/record.ts',
    'src/kubelet/checkpoint.ts',
    'src/kubelet/memory-formulas.ts',
    'src/sandbox/runtime-containers.ts',
    'src/sandbox/declare-pod.ts',
    'src/resize/foresight/pending-swap.ts',
    'src/resize/queue/request.ts',
    'src/cgroups/values/conversions.ts',
    'src/cgroups/values/controller-files.ts',
    'src/cgroups/proc.ts',
    'src/cgroups/values/settings.ts',
    'src/cgroups/systemd-units.ts',
    'src/tmpfs/mountinfo.ts',
    'src/tmpfs/sizes.ts',
    'src/core/quantities/kubernetes.ts',
    'src/config/duration.ts',
  ],
  testRunner: 'vitest',
  vitest: { configFile: 'vitest.mutation.config.ts', related: false },
  plugins: ['@stryker-mutator/vitest-runner'],
  ignorePatterns: [
    '/dist',
    '/bench',
    '/demo',
    '/docs',
    '/systemd',
    '/test/conformance',
    '/test/e2e',
    '/test/support/node',
  ],
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
