import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Command, InvalidArgumentError, Option } from 'commander';
import { execa } from 'execa';
import { packageRoot } from '../../tools/download/places.ts';
import { runCompared } from '../conformance/compared-command.ts';
import { compareInNodes } from '../conformance/nodes.ts';
import { focusOn, readReport } from '../conformance/results/results.ts';
import { prepareKubectl } from '../deploy/manifests.ts';
import type { WitnessResult } from '../interop/results.ts';
import { kubeletVersion, obtainKubernetes } from '../real-kubelet/programs.ts';
import { progressOf } from '../runner/vitest-run.ts';
import {
  type ContainerdRelease,
  containerdReleases,
  prepareNode,
  type Runtime,
  runtimes,
} from '../support/node/index.ts';
import { type InsideOrder, reportName, runInside } from './inside.ts';
import { obtainE2e, release } from './programs.ts';
import type { GroupName } from './selection.ts';
import { accepted, focusOf, groupNames, leastShare } from './selection.ts';

/** The suite `k8s-e2e`: the node tests of Kubernetes, on a real cluster, directly and through the shim. */

interface Flags {
  readonly containerd: ContainerdRelease;
  readonly runtime: Runtime;
  readonly only: readonly GroupName[];
  readonly focus?: string;
  readonly procs: number;
  readonly out?: string;
  readonly shim: string;
}

const say = progressOf('k8s-e2e');
const LIMIT_MS = 4 * 60 * 60_000;
const MEMORY_BYTES = 6 * 2 ** 30;

function count(text: string): number {
  if (!/^[1-9]$/.test(text)) throw new InvalidArgumentError('expected a number from 1 to 9.');
  return Number(text);
}

const program = new Command('k8s-e2e')
  .description(
    'Runs end-to-end tests of Kubernetes itself with a real kubelet, API server and scheduler in two test nodes, directly and through the shim, ' +
      'spec by spec. Fails if a spec passes directly but not through the shim.',
  )
  .addOption(new Option('--containerd <release>', 'containerd release').choices(containerdReleases).default('2.3'))
  // The specs run programs in containers with a hundredth of a processor, and runc uses that amount for seconds.
  .addOption(new Option('--runtime <name>', 'OCI runtime').choices(runtimes).default('crun'))
  .addOption(new Option('--only <group...>', 'groups of specs').choices(groupNames).default([...groupNames]))
  .option('--focus <regex>', 'run specs whose full name matches (Go syntax) instead of the groups')
  .option('--procs <count>', 'specs that run at the same time', count, 6)
  .option('--out <folder>', 'store reports and logs in this folder')
  .option('--shim <file>', 'program of the shim', join(packageRoot(), 'dist/cri-resize-shim.js'))
  .action(main);

program
  .command('inside', { hidden: true })
  .argument('<order>')
  .action((order: string) => runInside(JSON.parse(order) as InsideOrder));

async function main(flags: Flags): Promise<void> {
  const { containerd, runtime, out } = flags;
  process.exitCode = await runCompared({
    name: 'k8s-e2e',
    shim: flags.shim,
    out,
    accepted,
    say,
    run: async (shim, outDir, signal) => {
      const results = [await runSpecs({ ...flags, shim }, outDir, signal)];
      const { containerdVersion, runtimeVersion } = await prepareNode({ containerd, runtime });
      const node = `containerd ${containerdVersion}, ${runtime} ${runtimeVersion}`;
      return { results, testedWith: `Kubernetes ${kubeletVersion(release).slice(1)}, ${node}` };
    },
  });
}

async function runSpecs(flags: Flags, outDir: string, signal: AbortSignal): Promise<WitnessResult> {
  const { containerd, runtime, procs, shim, only, focus } = flags;
  const start = performance.now();
  const cluster = await obtainKubernetes(release, say);
  const programs = await obtainE2e(say);
  const common = { procs, shim, programs, kubectl: await prepareKubectl(say), images: await imagesOf(programs) };
  const first = focus ?? focusOf(only);
  const compared = await compareInNodes({
    what: `the tests of Kubernetes ${kubeletVersion(release)} on containerd ${containerd}`,
    node: {
      containerd,
      runtime,
      memoryBytes: MEMORY_BYTES,
      env: { KUBERNETES_PROGRAMS: join(cluster.folder, 'bin') },
    },
    command: (side, names) => {
      const order: InsideOrder = { ...common, side, focus: names === undefined ? first : focusOn(names) };
      return [process.execPath, fileURLToPath(import.meta.url), 'inside', JSON.stringify(order)];
    },
    resultsOf: async (folder) => readReport(await readFile(join(folder, reportName), 'utf8')),
    leastPassedDirect: (specs) => (focus === undefined ? Math.ceil(specs * leastShare) : 1),
    limitMs: LIMIT_MS,
    outDir,
    say,
    signal,
  });
  return { witness: 'k8s-e2e', ...compared, faults: [], seconds: (performance.now() - start) / 1000 };
}

/** The names of all images that the specs may use. */
async function imagesOf(programs: string): Promise<readonly string[]> {
  const { stdout } = await execa(join(programs, 'e2e.test'), ['--list-images'], { cwd: tmpdir() });
  return stdout.split('\n').filter((line) => /^\S+\/\S+:\S+$/.test(line));
}

await program.parseAsync();
