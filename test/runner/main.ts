import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command } from 'commander';
import { execa } from 'execa';
import { type ContainerdRelease, type Init, containerdReleases, packagedReleases } from '../support/node/index.ts';
import { packageRoot } from '../../tools/download/places.ts';
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
    `only on these releases, of ${containerdReleases.join(', ')}; one that Debian does not have is built first (default: those of Debian)`,
  )
  .option('-t, --title <text>', 'only tests with this text in their title; needs files')
  .parse();

const say = progressOf('test');

/** Test files that do not run on a release of containerd, because it lacks what they test. */
const UNSUITABLE: Readonly<Record<ContainerdRelease, readonly string[]>> = {
  '1.6': [
    ...['volume*', 'tmpfs', 'own-mounts', 'foresight*', 'hold', 'foreign-remount', 'reclaim', 'bad-input/*'],
    ...['kubernetes', 'resizectl', 'doctor', 'docs', 'upgrade', 'image'],
    // It does not have the call.
    'container-events',
  ],
  // It sends each event to one client only, so that direct and forwarded events cannot be compared.
  '1.7': ['container-events'],
  '2.1': [],
  '2.3': [],
};

/**
 * Test files that do not depend on the release of containerd: those between kernel and shim, and those between shim and Kubernetes,
 * systemd or a user. A node takes minutes, so they run on 2.1 only, unless --containerd names another release.
 */
const INDEPENDENT = [
  ...['foresight*', 'hold', 'volume*', 'tmpfs', 'own-mounts', 'foreign-remount', 'reclaim', 'bad-input/*', 'journal'],
  ...[
    'declared-pod',
    'admission',
    'memory-qos',
    'swap',
    'kubernetes',
    'resizectl',
    'doctor',
    'docs',
    'upgrade',
    'image',
  ],
];

/** `npm run matrix` runs more than the matrix here, on all releases but 1.6. */
const leftOut = (release: ContainerdRelease, isNamed: boolean): readonly string[] => [
  ...UNSUITABLE[release],
  ...(isNamed || release === '2.1' ? [] : INDEPENDENT),
  ...(isNamed || release === '1.6' ? [] : ['matrix']),
];

interface Context {
  /** For the results of the runs. Removed at the end. */
  readonly folder: string;
  readonly title?: string | undefined;
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
  { folder, title, signal }: Context,
  what: string,
  node: Pick<NodeRun, 'containerd' | 'init' | 'only' | 'exclude'>,
): Promise<Outcome> {
  return testsInNode({
    ...node,
    what: `end to end, ${what}`,
    project: 'e2e',
    runtime: 'runc',
    outDir: join(folder, what),
    title,
    timeoutMs: 30 * 60_000,
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
  const releases: readonly ContainerdRelease[] =
    requested === undefined ? packagedReleases : containerdReleases.filter((release) => requested.includes(release));
  const executable = buildExecutable(context);
  const inNode = (containerd: ContainerdRelease): Promise<Outcome> =>
    endToEnd(context, `containerd ${containerd}`, {
      containerd,
      exclude: [
        ...leftOut(containerd, requested !== undefined).map((name) => `test/e2e/**/${name}.test.ts`),
        ...UNDER_SYSTEMD,
        ...BYPASS,
        ...INSTALLING,
      ],
    });
  const underSystemd = (what: string, only: readonly string[]): Promise<Outcome> =>
    endToEnd(context, what, { containerd: '2.1', init: 'systemd', only });
  const installing = async (): Promise<Outcome> => {
    await executable;
    return underSystemd('installing', INSTALLING);
  };
  // The longest runs are first. A node uses one processor, like most files of unit tests.
  const withSystemd = releases.includes('2.1');
  const [newest, ...older] = releases.toReversed().map((release) => () => inNode(release));
  const runs: readonly Run[] = [
    ...(newest === undefined ? [] : [newest]),
    ...(withSystemd ? [() => underSystemd('systemd', [...UNDER_SYSTEMD, ...WITH_EITHER_DRIVER])] : []),
    ...older,
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
  const outcomes = await inPairs(runs, (run) => run());
  const isEmpty = outcomes.every(({ passed, failures }) => passed === 0 && failures.length === 0);
  if (!isEmpty) return outcomes;
  const what = `no test of these files has this title: ${context.title ?? ''}`;
  return [...outcomes, { what: 'title', passed: 0, failures: [{ name: 'all', what }] }];
}

async function main(): Promise<number> {
  const options = program.opts<{ readonly containerd?: readonly string[]; readonly title?: string }>();
  const { files, containerd } = parseArguments(program.args, options.containerd);
  const { title } = options;
  if (title !== undefined && files.length === 0)
    throw new SelectionError('--title needs files: npm test -- test/e2e/resize/resize.test.ts --title TEXT');
  const selection = files.length === 0 ? undefined : selectFiles(files, packageRoot());
  const signal = endingSignal();
  const folder = await mkdtemp(join(tmpdir(), 'cri-resize-shim-test-'));
  try {
    const context = { folder, title, signal };
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
