import { mkdtemp, rm } from 'node:fs/promises';
import { availableParallelism, tmpdir, totalmem } from 'node:os';
import { join } from 'node:path';
import { Command, Option } from 'commander';
import { execa } from 'execa';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { packageRoot } from '../../tools/download/places.ts';
import {
  type ContainerdRelease,
  containerdReleases,
  type Init,
  inits,
  isObtainable,
  type KernelName,
  kernels,
  type Runtime,
  runtimes,
} from '../support/node/index.ts';
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
  MAIN,
  MAIN_UNDER_SYSTEMD,
  parseArguments,
  type Selection,
  SelectionError,
  type Suite,
  selectFiles,
  suites,
  TOPICS,
  USUAL,
} from './selection.ts';
import {
  concurrently,
  count,
  endingSignal,
  flags,
  inPairs,
  type NodeRun,
  type Outcome,
  progressOf,
  report,
  testsInNode,
  titleFlags,
  vitest,
} from './vitest-run.ts';

/**
 * npm test: unit and property tests on this machine, and the end-to-end tests of the main job in test nodes; or only
 * the files that are named, or a suite of `npm run nightly`. Ends with a line of how many tests passed and failed.
 */
const program = new Command('test')
  .description(
    'Runs the unit tests on this machine, and the end-to-end tests of the main job in test nodes. Ends with a line of how many passed and failed.',
  )
  .argument(
    '[file...]',
    'only these test files, such as test/e2e/resize/resize.test.ts; end-to-end tests run on containerd 2.1',
  )
  .addOption(new Option('--suite <name>', 'only the tests of this suite').choices(suites))
  .option(
    '--containerd <release...>',
    `only on these releases, of ${containerdReleases.join(', ')}; needs files or a suite; one that Debian does not have is built first`,
  )
  .addOption(new Option('--runtime <name>', 'OCI runtime; needs files').choices(runtimes).default('runc'))
  .addOption(new Option('--init <name>', 'only on nodes with this first process; needs files').choices(inits))
  .option('-t, --title <text>', 'only tests with this text in their title; needs files or a suite')
  .addOption(
    new Option('--kernel <name>', "the node's kernel, User Mode Linux or Debian's in qemu; needs files")
      .choices(kernels)
      .default('uml'),
  )
  .parse();

interface Flags {
  readonly suite?: Suite;
  readonly containerd?: readonly string[];
  readonly runtime: Runtime;
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

/** Tests on this machine. `files`: all of the project if empty. `seed`: of random cases; new ones if absent. */
async function onThisMachine(
  { folder, title, signal }: Context,
  project: 'unit' | 'speed',
  files: readonly string[] = [],
  seed?: string,
): Promise<Outcome> {
  say(`${project} tests ...`);
  const results = join(folder, `${project}.json`);
  // By default, vitest leaves one processor idle, but towards the end no node runs any more.
  const workers = project === 'unit' ? [`--maxWorkers=${availableParallelism()}`] : [];
  await execa(vitest, [...flags(project, results), ...workers, ...titleFlags(title), ...files], {
    env: { ...(seed !== undefined && { CRI_RESIZE_SHIM_PROPERTY_SEED: seed }) },
    stdio: ['ignore', 'inherit', 'inherit'],
    cancelSignal: signal,
    reject: false,
  });
  return { ...(await count(project, results)), sameNode: '' };
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
    timeoutMs: (kernel === 'uml' ? 60 : 120) * 60_000,
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

/** The memory of a node: 1.6 GiB when its page cache is full, and the programs that run next to it. */
const MEMORY_OF_A_NODE = 4 * 1024 * MiB;

/**
 * How many nodes run concurrently. User Mode Linux uses one processor, and nodes that share one delay each other at
 * each system call. A machine with little memory has fewer.
 */
const nodesAtOnce = (): number =>
  Math.max(1, Math.min(availableParallelism(), Math.floor(totalmem() / MEMORY_OF_A_NODE)));

/** The main release here: 2.3, or Debian's without a Go toolchain. */
async function mainReleaseHere(): Promise<ContainerdRelease> {
  const canBuild = await isObtainable('2.3');
  if (!canBuild) say(`containerd ${DEBIANS} is tested instead of 2.3: building that needs a Go toolchain`);
  return mainRelease(canBuild);
}

/** End-to-end tests on the main release, with crun, which starts a container in less time than runc. */
const onMain =
  (context: Context, release: ContainerdRelease, what: string, { only = [], exclude = [] }: Files): Run =>
  () =>
    endToEnd(context, `containerd ${release}, ${what}`, {
      containerd: release,
      runtime: 'crun',
      only,
      exclude: [...excludedOfMain(release), ...exclude],
    });
type Files = Pick<NodeRun, 'only' | 'exclude'>;

/** The runs of the suite `e2e`, the longest first. */
async function allEndToEnd(
  context: Context,
  requested: readonly ContainerdRelease[] | undefined,
): Promise<readonly Run[]> {
  if (requested !== undefined) {
    return inOrder(requested).map(
      (containerd) => () =>
        endToEnd(context, `containerd ${containerd}`, { containerd, exclude: excludedOf(containerd) }),
    );
  }
  const main = await mainReleaseHere();
  const others = usualReleases(main !== DEBIANS).filter((release) => release !== main);
  return [
    ...TOPICS.map((topics) =>
      onMain(context, main, topics.join(', '), { only: topics.map((topic) => `test/e2e/${topic}/`) }),
    ),
    ...others.map(
      (containerd) => () =>
        endToEnd(context, `containerd ${containerd}`, { containerd, exclude: excludedAsIndependent(containerd) }),
    ),
    onMain(context, main, 'other topics', { exclude: TOPICS.flat().map((topic) => `test/e2e/${topic}/**`) }),
  ];
}

/** The random cases of `npm test` are the same in each run. The suites `unit` and `node-24` find new ones. */
const SEED = '2026';

/** `npm test` without arguments. The nodes run one after the other, because the unit tests use the other processors. */
async function usual(context: Context): Promise<readonly Outcome[]> {
  const main = await mainReleaseHere();
  const unit = async (): Promise<Outcome> => {
    await buildExecutable(context);
    return onThisMachine(context, 'unit', [], SEED);
  };
  const nodes = oneByOne([
    onMain(context, main, 'main job', { only: MAIN }),
    () =>
      endToEnd(context, `systemd, containerd ${DEBIANS}`, {
        containerd: DEBIANS,
        init: 'systemd',
        only: MAIN_UNDER_SYSTEMD,
      }),
  ]);
  const [inNodes, ofUnits] = await Promise.all([nodes, unit()]);
  return [...inNodes, ofUnits];
}

async function selected(
  context: Context,
  { unit, speed, plain, systemd, installing, needsExecutable }: Selection,
  releases: readonly ContainerdRelease[],
  { init: requested, runtime }: Flags,
): Promise<readonly Outcome[]> {
  if (needsExecutable) {
    say('building the executable ...');
    await buildExecutable(context);
  }
  const inNodes = (what: string, init: Init, only: readonly string[]): readonly Run[] =>
    only.length === 0 || (requested ?? init) !== init
      ? []
      : releases.map(
          (containerd) => () =>
            endToEnd(context, `${what}containerd ${containerd}`, { containerd, runtime, init, only }),
        );
  const runs = [
    ...inNodes('installing, ', 'systemd', installing),
    ...inNodes('systemd, ', 'systemd', systemd),
    ...inNodes('', 'plain', plain),
    ...(unit.length === 0 ? [] : [() => onThisMachine(context, 'unit', unit)]),
  ];
  // A virtual machine uses two processors, User Mode Linux one.
  const outcomes = [...(context.kernel === 'uml' ? await inPairs(runs, (run) => run()) : await oneByOne(runs))];
  // Alone, because they measure time.
  if (speed.length > 0) outcomes.push(await onThisMachine(context, 'speed', speed));
  return outcomes;
}

async function oneByOne(runs: readonly Run[]): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  for (const run of runs) outcomes.push(await run());
  return outcomes;
}

/** Runs what the command line selects. Throws SelectionError. */
async function run(context: Context, options: Flags): Promise<readonly Outcome[]> {
  const { suite } = options;
  const { files, containerd } = parseArguments(program.args, options.containerd);
  const choose = (chosen: readonly string[]): Promise<readonly Outcome[]> =>
    selected(context, selectFiles(chosen, packageRoot()), containerd ?? ['2.1'], options);
  if (files.length > 0) return choose(files);
  if (suite === undefined) return usual(context);
  switch (suite) {
    case 'unit':
    case 'speed':
      return [await onThisMachine(context, suite)];
    case 'e2e':
      return concurrently(nodesAtOnce(), await allEndToEnd(context, containerd), (start) => start());
    case 'systemd':
      return choose([...USUAL.systemd, ...USUAL.installing]);
    case 'long':
      return choose([...LONG.systemd, ...LONG.installing]);
  }
}

/** Throws SelectionError if a flag has no meaning without files, or with a suite. */
function checkFlags({ suite, containerd, init, title, kernel, runtime }: Flags, files: readonly string[]): void {
  const file = 'npm test -- test/e2e/resize/resize.test.ts';
  if (files.length > 0 && suite !== undefined) throw new SelectionError('--suite or files, not both');
  if (files.length > 0) return;
  if (kernel !== 'uml') throw new SelectionError(`--kernel needs files: ${file} --kernel debian`);
  if (runtime !== 'runc') throw new SelectionError(`--runtime needs files: ${file} --runtime crun`);
  if (init !== undefined && suite !== 'systemd' && suite !== 'long')
    throw new SelectionError('--init needs files: npm test -- test/e2e/foresight/hold.test.ts --init systemd');
  if (title !== undefined && suite === undefined)
    throw new SelectionError(`--title needs files or --suite: ${file} --title TEXT`);
  if (containerd !== undefined && (suite === undefined || suite === 'unit' || suite === 'speed'))
    throw new SelectionError(`--containerd needs files or --suite e2e: ${file} --containerd 1.7`);
}

async function main(): Promise<number> {
  const options = program.opts<Flags>();
  const { title, kernel } = options;
  checkFlags(options, parseArguments(program.args, options.containerd).files);
  const signal = endingSignal();
  const folder = await mkdtemp(join(tmpdir(), 'cri-resize-shim-test-'));
  try {
    return report('tests', await run({ folder, title, kernel, signal }, options), say);
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
