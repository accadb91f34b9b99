import { mkdtemp, rm } from 'node:fs/promises';
import { availableParallelism, tmpdir, totalmem } from 'node:os';
import { join } from 'node:path';
import { Command, Option } from 'commander';
import { execa } from 'execa';
import { MiB } from '../../src/core/quantities/index.ts';
import {
  type ContainerdRelease,
  type Init,
  type KernelName,
  containerdReleases,
  type Runtime,
  inits,
  isObtainable,
  kernels,
} from '../support/node/index.ts';
import { packageRoot } from '../../tools/download/places.ts';
import {
  DEBIANS,
  excludedAsIndependent,
  excludedOf,
  excludedOfMain,
  inOrder,
  mainRelease,
  usualReleases,
} from './releases.ts';
import {
  LONG,
  type Selection,
  SelectionError,
  type SystemdTests,
  TOPICS,
  USUAL,
  parseArguments,
  selectFiles,
} from './selection.ts';
import {
  type NodeRun,
  type Outcome,
  count,
  endingSignal,
  flags,
  concurrently,
  inPairs,
  progressOf,
  report,
  testsInNode,
  titleFlags,
  vitest,
} from './vitest-run.ts';

/**
 * npm test: unit and property tests on this machine, and the end-to-end tests that need no systemd inside a test node of each containerd;
 * or only the files that are named. Ends with a line of how many tests passed and failed.
 */
const program = new Command('test')
  .description(
    'Runs the unit tests on this machine, and the end-to-end tests without systemd in test nodes. Ends with a line of how many passed and failed.',
  )
  .argument(
    '[file...]',
    'only these test files, such as test/e2e/resize/resize.test.ts; end-to-end tests run on containerd 2.1',
  )
  .option(
    '--containerd <release...>',
    `only on these releases, of ${containerdReleases.join(', ')}; one that Debian does not have is built first (default: 1.7 and 2.3, without Go 2.1)`,
  )
  .addOption(new Option('--init <name>', 'only on nodes with this first process; needs files').choices(inits))
  .option('--systemd', 'only the tests under systemd, without those of --long')
  .option('--long', 'only the tests under systemd that take long')
  .option('-t, --title <text>', 'only tests with this text in their title; needs files')
  .addOption(
    new Option('--kernel <name>', "the node's kernel, User Mode Linux or Debian's in qemu; needs files")
      .choices(kernels)
      .default('uml'),
  )
  .parse();

interface Flags {
  readonly systemd?: true;
  readonly long?: true;
  readonly containerd?: readonly string[];
  readonly init?: Init;
  readonly title?: string;
  readonly kernel: KernelName;
}

const say = progressOf('test');

interface Context {
  /** For the results of the runs. Removed at the end. */
  readonly folder: string;
  readonly title?: string | undefined;
  readonly kernel: KernelName;
  readonly signal: AbortSignal;
}

type Run = () => Promise<Outcome>;

/** @param files all unit tests if empty */
async function unitTests({ folder, title, signal }: Context, files: readonly string[]): Promise<Outcome> {
  say('unit and property tests ...');
  const results = join(folder, 'unit.json');
  // vitest leaves one processor idle, on which no node runs any more towards the end.
  const workers = `--maxWorkers=${availableParallelism()}`;
  await execa(vitest, [...flags('unit', results), workers, ...titleFlags(title), ...files], {
    stdio: ['ignore', 'inherit', 'inherit'],
    cancelSignal: signal,
    reject: false,
  });
  return count('unit', results);
}

/** End-to-end tests in a node: `only` these files, or all but those in `exclude`. */
function endToEnd(
  { folder, title, kernel, signal }: Context,
  what: string,
  node: Pick<NodeRun, 'containerd' | 'init' | 'only' | 'exclude'> & { readonly runtime?: Runtime },
): Promise<Outcome> {
  return testsInNode({
    runtime: 'runc',
    ...node,
    what: `end to end, ${what}`,
    project: 'e2e',
    kernel,
    outDir: join(folder, what),
    title,
    timeoutMs: (kernel === 'uml' ? 30 : 120) * 60_000,
    say,
    signal,
  });
}

/** A node cannot download its parts. */
const buildExecutable = ({ signal }: Context): Promise<unknown> =>
  execa(process.execPath, [join('dist', 'tools', 'package.js'), '--only', 'executable'], {
    stdio: ['ignore', 'ignore', 'inherit'],
    cancelSignal: signal,
    reject: false,
  });

/** What a node takes: 1.6 GiB when its page cache is full, and the programs that run next to it. */
const MEMORY_OF_A_NODE = 4 * 1024 * MiB;

/**
 * How many nodes run concurrently. User Mode Linux uses one processor, and nodes that share one delay each other at each system call. A
 * machine with little memory has fewer.
 */
const nodesAtOnce = (): number =>
  Math.max(1, Math.min(availableParallelism(), Math.floor(totalmem() / MEMORY_OF_A_NODE)));

/** The runs of all end-to-end tests in nodes without systemd, the longest first. */
function runsInNodes(
  context: Context,
  requested: readonly ContainerdRelease[] | undefined,
  canBuild: boolean,
): readonly Run[] {
  if (requested !== undefined) {
    return inOrder(requested).map(
      (containerd) => () =>
        endToEnd(context, `containerd ${containerd}`, { containerd, exclude: excludedOf(containerd) }),
    );
  }
  const main = mainRelease(canBuild);
  const ofMain =
    (what: string, { only = [], exclude = [] }: Pick<NodeRun, 'only' | 'exclude'>): Run =>
    () =>
      endToEnd(context, `containerd ${main}, ${what}`, {
        containerd: main,
        // The other nodes have runc. crun starts a container in less time.
        runtime: 'crun',
        only,
        exclude: [...excludedOfMain(main), ...exclude],
      });
  const others = usualReleases(canBuild).filter((release) => release !== main);
  return [
    ...TOPICS.map((topics) => ofMain(topics.join(', '), { only: topics.map((topic) => `test/e2e/${topic}/`) })),
    ...others.map(
      (containerd) => () =>
        endToEnd(context, `containerd ${containerd}`, { containerd, exclude: excludedAsIndependent(containerd) }),
    ),
    ofMain('other topics', { exclude: TOPICS.flat().map((topic) => `test/e2e/${topic}/**`) }),
  ];
}

async function everything(
  context: Context,
  requested: readonly ContainerdRelease[] | undefined,
): Promise<readonly Outcome[]> {
  const canBuild = await isObtainable('2.3');
  if (requested === undefined && !canBuild)
    say(`containerd ${DEBIANS} is tested instead of 2.3: building that needs a Go toolchain`);
  const unit = async (): Promise<Outcome> => {
    await buildExecutable(context);
    return unitTests(context, []);
  };
  const [outcomes, ofUnits] = await Promise.all([
    concurrently(nodesAtOnce(), runsInNodes(context, requested, canBuild), (run) => run()),
    unit(),
  ]);
  return [...outcomes, ofUnits];
}

async function selected(
  context: Context,
  { unit, plain, systemd, installing, needsExecutable }: Selection,
  releases: readonly ContainerdRelease[],
  requested: Init | undefined,
): Promise<readonly Outcome[]> {
  if (needsExecutable) {
    say('building the executable ...');
    await buildExecutable(context);
  }
  const inNodes = (what: string, init: Init, only: readonly string[]): readonly Run[] =>
    only.length === 0 || (requested ?? init) !== init
      ? []
      : releases.map(
          (containerd) => () => endToEnd(context, `${what}containerd ${containerd}`, { containerd, init, only }),
        );
  const runs = [
    ...inNodes('installing, ', 'systemd', installing),
    ...inNodes('systemd, ', 'systemd', systemd),
    ...inNodes('', 'plain', plain),
    ...(unit.length === 0 ? [] : [() => unitTests(context, unit)]),
  ];
  // A virtual machine uses two processors, User Mode Linux one.
  const outcomes = context.kernel === 'uml' ? await inPairs(runs, (run) => run()) : await oneByOne(runs);
  const isEmpty = outcomes.every(({ passed, failures }) => passed === 0 && failures.length === 0);
  if (!isEmpty) return outcomes;
  const what =
    context.title === undefined
      ? `none of these files runs with the first process ${requested ?? ''}`
      : `no test of these files has this title: ${context.title}`;
  return [...outcomes, { what: 'selection', passed: 0, failures: [{ name: 'all', what }] }];
}

async function oneByOne(runs: readonly Run[]): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  for (const run of runs) outcomes.push(await run());
  return outcomes;
}

/** Returns the tests under systemd that the flags select. Throws SelectionError. */
function groupOf({ systemd, long }: Flags, files: readonly string[]): SystemdTests | undefined {
  if (systemd === undefined && long === undefined) return undefined;
  if (systemd !== undefined && long !== undefined) throw new SelectionError('--systemd or --long, not both');
  const flag = long === undefined ? '--systemd' : '--long';
  if (files.length > 0) throw new SelectionError(`${flag} takes no files`);
  return long === undefined ? USUAL : LONG;
}

async function main(): Promise<number> {
  const options = program.opts<Flags>();
  const { files, containerd } = parseArguments(program.args, options.containerd);
  const { init, title, kernel } = options;
  const group = groupOf(options, files);
  if (kernel !== 'uml' && files.length === 0)
    throw new SelectionError('--kernel needs files: npm test -- test/e2e/resize/resize.test.ts --kernel debian');
  if (init !== undefined && files.length === 0 && group === undefined)
    throw new SelectionError('--init needs files: npm test -- test/e2e/foresight/hold.test.ts --init systemd');
  if (title !== undefined && files.length === 0 && group === undefined)
    throw new SelectionError('--title needs files: npm test -- test/e2e/resize/resize.test.ts --title TEXT');
  const chosen = group === undefined ? files : [...group.systemd, ...group.installing];
  const selection = chosen.length === 0 ? undefined : selectFiles(chosen, packageRoot());
  const signal = endingSignal();
  const folder = await mkdtemp(join(tmpdir(), 'cri-resize-shim-test-'));
  try {
    const context = { folder, title, kernel, signal };
    const outcomes =
      selection === undefined
        ? await everything(context, containerd)
        : await selected(context, selection, containerd ?? ['2.1'], init);
    return report('tests', outcomes, say);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

try {
  process.exitCode = await main();
} catch (error) {
  if (!(error instanceof SelectionError)) throw error;
  process.stderr.write(`test: ${error.message}\n`);
  process.exitCode = 2;
}
