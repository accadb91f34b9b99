import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command, Option } from 'commander';
import { execa } from 'execa';
import {
  type ContainerdRelease,
  type Init,
  type KernelName,
  containerdReleases,
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
  BYPASS,
  INSTALLING,
  type Selection,
  SelectionError,
  UNDER_SYSTEMD,
  WITH_EITHER_DRIVER,
  parseArguments,
  selectFiles,
} from './selection.ts';
import {
  type NodeRun,
  type Outcome,
  count,
  endingSignal,
  flags,
  inPairs,
  progressOf,
  report,
  testsInNode,
  titleFlags,
  vitest,
} from './vitest-run.ts';

/**
 * npm test: unit and property tests on this machine, then the end-to-end tests inside a test node of each containerd; or only the
 * files that are named. Ends with a line of how many tests passed and failed.
 */
const program = new Command('test')
  .description(
    'Runs the unit tests on this machine, and the end-to-end tests in test nodes. Ends with a line of how many passed and failed.',
  )
  .argument(
    '[file...]',
    'only these test files, such as test/e2e/resize/resize.test.ts; end-to-end tests run on containerd 2.1',
  )
  .option(
    '--containerd <release...>',
    `only on these releases, of ${containerdReleases.join(', ')}; one that Debian does not have is built first (default: 1.7 and 2.3, without Go 2.1)`,
  )
  .option('-t, --title <text>', 'only tests with this text in their title; needs files')
  .addOption(
    new Option('--kernel <name>', "the node's kernel, User Mode Linux or Debian's in qemu; needs files")
      .choices(kernels)
      .default('uml'),
  )
  .parse();

interface Flags {
  readonly containerd?: readonly string[];
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
  await execa(vitest, [...flags('unit', results), ...titleFlags(title), ...files], {
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
  node: Pick<NodeRun, 'containerd' | 'init' | 'only' | 'exclude' | 'isUnbound'>,
): Promise<Outcome> {
  return testsInNode({
    ...node,
    what: `end to end, ${what}`,
    project: 'e2e',
    runtime: 'runc',
    kernel,
    outDir: join(folder, what),
    title,
    timeoutMs: (kernel === 'uml' ? 30 : 120) * 60_000,
    say,
    signal,
  });
}

/** Runs concurrently with the first runs, which do not need the executable. A node cannot download its parts. */
const buildExecutable = ({ signal }: Context): Promise<unknown> =>
  execa(process.execPath, [join('dist', 'tools', 'package.js'), '--only', 'executable'], {
    stdio: ['ignore', 'ignore', 'inherit'],
    cancelSignal: signal,
    reject: false,
  });

async function everything(
  context: Context,
  requested: readonly ContainerdRelease[] | undefined,
): Promise<readonly Outcome[]> {
  const canBuild = await isObtainable('2.3');
  if (requested === undefined && !canBuild)
    say(`containerd ${DEBIANS} is tested instead of 2.3: building that needs a Go toolchain`);
  const releases = inOrder(requested ?? usualReleases(canBuild));
  const main = mainRelease(canBuild);
  const excluded = (containerd: ContainerdRelease): readonly string[] => {
    if (requested !== undefined) return excludedOf(containerd);
    return containerd === main ? excludedOfMain(containerd) : excludedAsIndependent(containerd);
  };
  const executable = buildExecutable(context);
  // Three nodes leave no processor idle, so that binding them gains nothing.
  const isUnbound = true;
  const inNode = (containerd: ContainerdRelease): Promise<Outcome> =>
    endToEnd(context, `containerd ${containerd}`, { containerd, exclude: excluded(containerd), isUnbound });
  const underSystemd = (what: string, only: readonly string[]): Promise<Outcome> =>
    endToEnd(context, what, { containerd: DEBIANS, init: 'systemd', only, isUnbound });
  const installing = async (): Promise<Outcome> => {
    await executable;
    return underSystemd('installing', INSTALLING);
  };
  // The longest runs are first. A node uses one processor, like most files of unit tests.
  const withSystemd = requested?.includes(DEBIANS) ?? true;
  const plain = (some: readonly ContainerdRelease[]): readonly Run[] => some.map((release) => () => inNode(release));
  const runs: readonly Run[] = [
    ...plain(releases.filter((release) => release === main)),
    ...(withSystemd ? [() => underSystemd('systemd', [...UNDER_SYSTEMD, ...WITH_EITHER_DRIVER])] : []),
    ...plain(releases.filter((release) => release !== main)),
    async () => {
      await executable;
      return unitTests(context, []);
    },
  ];
  const waiting = async (): Promise<readonly Outcome[]> => [await installing(), await underSystemd('bypass', BYPASS)];
  const [outcomes, others] = await Promise.all([inPairs(runs, (run) => run()), withSystemd ? waiting() : []]);
  return [...outcomes, ...others];
}

async function selected(
  context: Context,
  { unit, plain, systemd, installing, needsExecutable }: Selection,
  releases: readonly ContainerdRelease[],
): Promise<readonly Outcome[]> {
  if (needsExecutable) {
    say('building the executable ...');
    await buildExecutable(context);
  }
  const inNodes = (what: string, init: Init, only: readonly string[]): readonly Run[] =>
    only.length === 0
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
  const what = `no test of these files has this title: ${context.title ?? ''}`;
  return [...outcomes, { what: 'title', passed: 0, failures: [{ name: 'all', what }] }];
}

async function oneByOne(runs: readonly Run[]): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  for (const run of runs) outcomes.push(await run());
  return outcomes;
}

async function main(): Promise<number> {
  const options = program.opts<Flags>();
  const { files, containerd } = parseArguments(program.args, options.containerd);
  const { title, kernel } = options;
  if (kernel !== 'uml' && files.length === 0)
    throw new SelectionError('--kernel needs files: npm test -- test/e2e/resize/resize.test.ts --kernel debian');
  if (title !== undefined && files.length === 0)
    throw new SelectionError('--title needs files: npm test -- test/e2e/resize/resize.test.ts --title TEXT');
  const selection = files.length === 0 ? undefined : selectFiles(files, packageRoot());
  const signal = endingSignal();
  const folder = await mkdtemp(join(tmpdir(), 'cri-resize-shim-test-'));
  try {
    const context = { folder, title, kernel, signal };
    const outcomes =
      selection === undefined
        ? await everything(context, containerd)
        : await selected(context, selection, containerd ?? ['2.1']);
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
