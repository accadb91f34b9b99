import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command, Option } from 'commander';
import { execa } from 'execa';
import { type ContainerdRelease, containerdReleases, packagedReleases } from './node/index.ts';
import {
  type Outcome,
  count,
  endingSignal,
  flags,
  inPairs,
  progressOf,
  report,
  testsInNode,
  vitest,
} from './vitest-run.ts';

/**
 * npm test: unit and property tests on this machine, then the end-to-end tests inside a test node of each containerd. Ends
 * with a line of how many tests have passed and failed.
 */
const { containerd: asked } = new Command('test')
  .description(
    'Runs the unit tests on this machine, and the end-to-end tests in test nodes. Ends with a line of how many have passed and failed.',
  )
  .addOption(
    new Option(
      '--containerd <release...>',
      'only these; also one that is built first (default: those of Debian)',
    ).choices(containerdReleases),
  )
  .parse()
  .opts<{ readonly containerd?: readonly ContainerdRelease[] }>();

const say = progressOf('test');

/**
 * Tests that a release of containerd does without. Each node takes minutes, so what does not depend on the release is seen on some:
 * what is between kernel and shim on two or one, what is between Kubernetes, systemd or a person and the shim on one; and `npm run matrix` has
 * more than the matrix here, of all releases but 1.6.
 */
const LEFT_OUT: Readonly<Record<ContainerdRelease, readonly string[]>> = {
  '1.6': [
    ...['volume*', 'tmpfs', 'own-mounts', 'foresight*', 'foreign-remount', 'reclaim', 'bad-input/*'],
    ...['kubernetes', 'resizectl', 'doctor', 'docs', 'upgrade', 'image'],
  ],
  '1.7': [
    ...['matrix', 'tmpfs', 'own-mounts', 'volume-attacks', 'foreign-remount'],
    ...['kubernetes', 'resizectl', 'doctor', 'docs', 'upgrade', 'image'],
  ],
  '2.1': ['matrix'],
  '2.3': ['kubernetes', 'resizectl', 'doctor', 'docs', 'upgrade'],
};

/** What a node with systemd as its first process is for; all others do without. */
const UNDER_SYSTEMD = ['test/e2e/systemd.test.ts', 'test/e2e/units.test.ts'];

/** So is this. Most of its time it waits for units and kubelet, so it goes on in a node of its own beside all others. */
const INSTALLING = ['test/e2e/install.test.ts', 'test/e2e/installer.test.ts', 'test/e2e/executable.test.ts'];

/** What works by either cgroup driver, and differs: seen with both. */
const WITH_EITHER_DRIVER = ['test/e2e/foresight.test.ts', 'test/e2e/foresight-volumes.test.ts'];

async function unitTests(folder: string, signal: AbortSignal): Promise<Outcome> {
  say('unit and property tests ...');
  const results = join(folder, 'unit.json');
  await execa(vitest, flags('unit', results), {
    stdio: ['ignore', 'inherit', 'inherit'],
    cancelSignal: signal,
    reject: false,
  });
  return count('unit', results);
}

async function main(): Promise<number> {
  const releases: readonly ContainerdRelease[] =
    asked === undefined ? packagedReleases : containerdReleases.filter((release) => asked.includes(release));
  const signal = endingSignal();
  const folder = await mkdtemp(join(tmpdir(), 'cri-resize-shim-test-'));
  try {
    // Made beside the first nodes, which do without; a node cannot fetch what it is made of.
    const executable = execa(process.execPath, [join('dist', 'tools', 'package.js'), '--only', 'executable'], {
      stdio: ['ignore', 'ignore', 'inherit'],
      cancelSignal: signal,
      reject: false,
    });
    const inNode = (containerd: ContainerdRelease): Promise<Outcome> =>
      testsInNode({
        what: `end to end, containerd ${containerd}`,
        project: 'e2e',
        containerd,
        runtime: 'runc',
        outDir: join(folder, containerd),
        exclude: [...LEFT_OUT[containerd].map((name) => `test/e2e/${name}.test.ts`), ...UNDER_SYSTEMD, ...INSTALLING],
        timeoutMs: 30 * 60_000,
        say,
        signal,
      });
    const underSystemd = (what: string, only: readonly string[]): Promise<Outcome> =>
      testsInNode({
        what: `end to end, ${what}`,
        project: 'e2e',
        containerd: '2.1',
        runtime: 'runc',
        init: 'systemd',
        outDir: join(folder, what),
        only,
        timeoutMs: 30 * 60_000,
        say,
        signal,
      });
    const installing = async (): Promise<Outcome> => {
      await executable;
      return underSystemd('installing', INSTALLING);
    };
    // The newest have most tests: what is left for the end is short. A node has one processor, and so have most files of unit tests.
    const withSystemd = releases.includes('2.1');
    const runs = [
      ...releases.toReversed().map((release) => () => inNode(release)),
      ...(withSystemd ? [() => underSystemd('systemd', [...UNDER_SYSTEMD, ...WITH_EITHER_DRIVER])] : []),
      async () => {
        await executable;
        return unitTests(folder, signal);
      },
    ];
    const [outcomes, beside] = await Promise.all([
      inPairs(runs, (run) => run()),
      Promise.all(withSystemd ? [installing()] : []),
    ]);
    return report('tests', [...outcomes, ...beside], say);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

process.exitCode = await main();
