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
  BYPASS,
  INSTALLING,
  type Selection,
  SelectionError,
  SEPARATE_TOPICS,
  UNDER_SYSTEMD,
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
  .addOption(new Option('--init <name>', 'only on nodes with this first process; needs files').choices(inits))
  .option('-t, --title <text>', 'only tests with this text in their title; needs files')
  .addOption(
    new Option('--kernel <name>', "the node's kernel, User Mode Linux or Debian's in qemu; needs files")
      .choices(kernels)
      .default('uml'),
  )
  .parse();

interface Flags {
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
  node: Pick<NodeRun, 'containerd' | 'init' | 'only' | 'exclude' | 'isUnbound'> & { readonly runtime?: Runtime },
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

/** Runs concurrently with the first runs, which do not need the executable. A node cannot download its parts. */
const buildExecutable = ({ signal }: Context): Promise<unknown> =>
  execa(process.execPath, [join('dist', 'tools', 'package.js'), '--only', 'executable'], {
    stdio: ['ignore', 'ignore', 'inherit'],
    cancelSignal: signal,
    reject: false,
  });

/** The runs of all end-to-end tests in nodes, the longest first. `installing` waits for the executable. */
function runsInNodes(
  context: Context,
  requested: readonly ContainerdRelease[] | undefined,
  canBuild: boolean,
  executable: Promise<unknown>,
): readonly Run[] {
  // Three nodes leave no processor idle, so that binding them gains nothing.
  const isUnbound = true;
  const underSystemd = (what: string, only: readonly string[]): Promise<Outcome> =>
    endToEnd(context, what, { containerd: DEBIANS, init: 'systemd', only, isUnbound });
  const systemd: readonly Run[] = [
    async () => {
      await executable;
      return underSystemd('installing', INSTALLING);
    },
    () => underSystemd('bypass', BYPASS),
    () => underSystemd('systemd', UNDER_SYSTEMD),
  ];
  if (requested !== undefined) {
    const whole = inOrder(requested).map(
      (containerd) => () =>
        endToEnd(context, `containerd ${containerd}`, { containerd, exclude: excludedOf(containerd), isUnbound }),
    );
    return [...whole, ...(requested.includes(DEBIANS) ? systemd : [])];
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
        isUnbound,
      });
  const others = usualReleases(canBuild).filter((release) => release !== main);
  return [
    ofMain(SEPARATE_TOPICS.join(', '), { only: SEPARATE_TOPICS.map((topic) => `test/e2e/${topic}/`) }),
    ofMain('other topics', { exclude: SEPARATE_TOPICS.map((topic) => `test/e2e/${topic}/**`) }),
    ...systemd,
    ...others.map(
      (containerd) => () =>
        endToEnd(context, `containerd ${containerd}`, {
          containerd,
          exclude: excludedAsIndependent(containerd),
          isUnbound,
        }),
    ),
  ];
}

async function everything(
  context: Context,
  requested: readonly ContainerdRelease[] | undefined,
): Promise<readonly Outcome[]> {
  const canBuild = await isObtainable('2.3');
  if (requested === undefined && !canBuild)
    say(`containerd ${DEBIANS} is tested instead of 2.3: building that needs a Go toolchain`);
  const executable = buildExecutable(context);
  const unit = async (): Promise<Outcome> => {
    await executable;
    return unitTests(context, []);
  };
  const [outcomes, ofUnits] = await Promise.all([
    concurrently(3, runsInNodes(context, requested, canBuild, executable), (run) => run()),
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

async function main(): Promise<number> {
  const options = program.opts<Flags>();
  const { files, containerd } = parseArguments(program.args, options.containerd);
  const { init, title, kernel } = options;
  if (kernel !== 'uml' && files.length === 0)
    throw new SelectionError('--kernel needs files: npm test -- test/e2e/resize/resize.test.ts --kernel debian');
  if (init !== undefined && files.length === 0)
    throw new SelectionError('--init needs files: npm test -- test/e2e/foresight/hold.test.ts --init systemd');
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
