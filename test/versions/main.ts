import { mkdtemp, rm } from 'node:fs/promises';
import { constants, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Command, Option } from 'commander';
import { execa } from 'execa';
import { excludedAsIndependent } from '../runner/releases.ts';
import { countsIn } from '../runner/results-reporter.ts';
import { endingSignal, inPairs, type Outcome, progressOf, report, testsInNode } from '../runner/vitest-run.ts';
import {
  type ContainerdRelease,
  containerdReleases,
  isObtainable,
  prepareNode,
  type Runtime,
} from '../support/node/index.ts';
import { canObtain, criTools } from '../support/node/parts/go-module.ts';
import { type Suite, suites, versionsTable } from './table.ts';

/** The suite `versions`: the suites that depend on containerd or on the OCI runtime, on each release of containerd. */

interface Flags {
  readonly containerd: readonly ContainerdRelease[];
  readonly suite: readonly Suite[];
}

const say = progressOf('versions');

const program = new Command('versions')
  .description(
    'Runs on each release of containerd, in test nodes: the end-to-end tests that depend on it, the matrix of resizes with each ' +
      'OCI runtime, and critest, crictl and ctr without and with the shim. Prints a table of release against suite.',
  )
  .addOption(
    new Option('--containerd <release...>', 'containerd releases')
      .choices(containerdReleases)
      .default([...containerdReleases]),
  )
  .addOption(new Option('--suite <name...>', 'suites').choices(suites).default([...suites]))
  .parse();

interface Cell {
  readonly containerd: ContainerdRelease;
  readonly suite: Suite;
}

/** Runs a suite that needs one node. */
function inNode({ containerd, suite }: Cell, folder: string, signal: AbortSignal): Promise<Outcome> {
  const node = { containerd, outDir: join(folder, `${containerd}-${suite}`), say, signal } as const;
  const what = `containerd ${containerd}, ${suite}`;
  if (suite === 'end-to-end')
    return testsInNode({
      ...node,
      what,
      project: 'e2e',
      runtime: 'runc',
      exclude: excludedAsIndependent(containerd),
      timeoutMs: 90 * 60_000,
    });
  const runtime = suite.replace('matrix-', '') as Runtime;
  return testsInNode({ ...node, what, project: 'matrix', runtime, timeoutMs: 60 * 60_000 });
}

/** Runs critest, crictl and ctr, in two nodes at a time. */
async function conformance({ containerd, suite }: Cell, signal: AbortSignal): Promise<Outcome> {
  const what = `containerd ${containerd}, ${suite}`;
  say(`${what} ...`);
  const command = join(dirname(fileURLToPath(import.meta.url)), 'conformance.js');
  const { stdout, exitCode } = await execa(process.execPath, [command, '--containerd', containerd], {
    stdin: 'ignore',
    stderr: 'inherit',
    cancelSignal: signal,
    reject: false,
  });
  process.stdout.write(`${stdout}\n`);
  const { passed, failed } = countsIn(stdout, exitCode);
  return { what, passed, failures: Array.from({ length: failed }, () => ({ name: suite, what: 'see above' })) };
}

/** critest calls what 1.6 does not have. */
const isPossible = ({ containerd, suite }: Cell): boolean => suite !== 'conformance' || containerd !== '1.6';

/** Exit codes: 0 all passed, 1 some failed, 130 ended by a signal. */
async function main(flags: Flags): Promise<number> {
  const signal = endingSignal();
  const folder = await mkdtemp(join(tmpdir(), 'cri-resize-shim-versions-'));
  try {
    const versions = new Map<ContainerdRelease, string>();
    for (const containerd of flags.containerd) {
      if (!(await isObtainable(containerd)))
        say(`containerd ${containerd} is left out: building it needs a Go toolchain`);
      else versions.set(containerd, (await prepareNode({ containerd, runtime: 'runc' }, say)).containerdVersion);
    }
    const hasCriTools = await canObtain(criTools);
    if (!hasCriTools) say('conformance is left out: building crictl and critest needs a Go toolchain');
    const suitesHere = flags.suite.filter((suite) => hasCriTools || suite !== 'conformance');
    const cells = [...versions.keys()].flatMap((containerd) =>
      suitesHere.map((suite) => ({ containerd, suite })).filter(isPossible),
    );
    const results = new Map<Cell, Outcome>();
    const single = cells.filter(({ suite }) => suite !== 'conformance');
    await inPairs(single, async (cell) => void results.set(cell, await inNode(cell, folder, signal)));
    for (const cell of cells.filter(({ suite }) => suite === 'conformance'))
      results.set(cell, await conformance(cell, signal));
    if (signal.aborted) return 128 + constants.signals.SIGINT;
    process.stdout.write(
      `${versionsTable(
        versions,
        [...results].map(([cell, outcome]) => ({ ...cell, outcome })),
      )}\n`,
    );
    return report('versions', [...results.values()], say);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

process.exitCode = await main(program.opts<Flags>());
