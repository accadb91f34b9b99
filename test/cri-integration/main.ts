import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Command, Option } from 'commander';
import { packageRoot } from '../../tools/download/places.ts';
import { runCompared } from '../conformance/compared-command.ts';
import { compareInNodes } from '../conformance/nodes.ts';
import type { WitnessResult } from '../interop/results.ts';
import { progressOf } from '../runner/vitest-run.ts';
import { builtVersions } from '../support/node/parts/go-module.ts';
import { type InsideOrder, logName, runInside } from './inside.ts';
import { obtainSuite, type Release, releases } from './programs.ts';
import { accepted, leastPassedDirect, readGoTests } from './report.ts';

/** The suite `cri-integration`: containerd's own tests of its CRI server, directly and through the shim. */

interface Flags {
  readonly containerd: readonly Release[];
  readonly test?: readonly string[];
  readonly out?: string;
  readonly shim: string;
}

const say = progressOf('cri-integration');
const LIMIT_MS = 120 * 60_000;
/** The runc of containerd's time. An older runc lacks features that the tests check. */
const RUNTIME = 'runc-1.3';

const program = new Command('cri-integration')
  .description(
    "Runs containerd's own tests of its CRI server on containerd in two test nodes, directly and through the shim, test by test. " +
      'Fails if a test passes directly but not through the shim.',
  )
  .addOption(
    new Option('--containerd <release...>', 'containerd releases, one or more')
      .choices(releases)
      .default([...releases]),
  )
  .option('--test <name...>', 'run only these tests: TestPodHostname')
  .option('--out <folder>', 'store logs in this folder')
  .option('--shim <file>', 'program of the shim', join(packageRoot(), 'dist/cri-resize-shim.js'))
  .action(main);

program
  .command('inside', { hidden: true })
  .argument('<order>')
  .action((order: string) => runInside(JSON.parse(order) as InsideOrder));

async function main(flags: Flags): Promise<void> {
  const { containerd, out } = flags;
  process.exitCode = await runCompared({
    name: 'cri-integration',
    shim: flags.shim,
    out,
    accepted,
    say,
    run: async (shim, outDir, signal) => {
      const results: WitnessResult[] = [];
      // Runs the releases one after the other, because each uses two nodes.
      for (const release of containerd) {
        results.push(await runSuite(release, { ...flags, shim }, join(outDir, release), signal));
      }
      const versions = containerd.map((release) => builtVersions[release]);
      return { results, testedWith: `containerd ${versions.join(', ')}` };
    },
  });
}

async function runSuite(
  release: Release,
  { shim, test }: Flags,
  outDir: string,
  signal: AbortSignal,
): Promise<WitnessResult> {
  const start = performance.now();
  const programs = await obtainSuite(release, say);
  const compared = await compareInNodes({
    what: `the CRI tests of containerd ${release}`,
    node: { containerd: release, runtime: RUNTIME },
    command: (side, only) => {
      // A subtest runs with the test around it.
      const tests = only === undefined ? (test ?? null) : [...new Set(only.map((name) => name.split('/', 1).join()))];
      const order: InsideOrder = { side, tests, shim, programs };
      return [process.execPath, fileURLToPath(import.meta.url), 'inside', JSON.stringify(order)];
    },
    resultsOf: async (folder) => readGoTests(await readFile(join(folder, logName), 'utf8')),
    leastPassedDirect: () => (test === undefined ? leastPassedDirect : 1),
    limitMs: LIMIT_MS,
    outDir,
    say: (line) => say(`${release}: ${line}`),
    signal,
  });
  return { witness: `containerd ${release}`, ...compared, faults: [], seconds: (performance.now() - start) / 1000 };
}

await program.parseAsync();
