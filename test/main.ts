import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { type ContainerdRelease, containerdReleases } from './node/index.ts';
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
 * with a line of how many tests have passed and failed. Arguments: `--containerd <release>` (again and again) for some only.
 */

const say = progressOf('test');

/**
 * Tests that a release of containerd does without. Each node takes minutes, so what does not depend on the release is seen on some:
 * what is between kernel and shim on two, what is between Kubernetes, systemd or a person and the shim on one; and `npm run matrix` has
 * more than the matrix here, of all releases but 1.6.
 */
const LEFT_OUT: Readonly<Record<ContainerdRelease, readonly string[]>> = {
  '1.6': ['volume*', 'tmpfs', 'foresight*', 'foreign-remount', 'kubernetes', 'resizectl', 'doctor', 'docs', 'upgrade'],
  '1.7': ['matrix', 'kubernetes', 'resizectl', 'doctor', 'docs', 'upgrade'],
  '2.1': ['matrix'],
};

/** What a node with systemd as its first process is for; all others do without. */
const UNDER_SYSTEMD = ['test/e2e/systemd.test.ts', 'test/e2e/units.test.ts', 'test/e2e/install.test.ts'];

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
  const asked = process.argv.flatMap((argument, at, all) => (argument === '--containerd' ? [all[at + 1]] : []));
  const releases = containerdReleases.filter((release) => asked.length === 0 || asked.includes(release));
  const signal = endingSignal();
  const folder = await mkdtemp(join(tmpdir(), 'cri-resize-shim-test-'));
  try {
    const inNode = (containerd: ContainerdRelease): Promise<Outcome> =>
      testsInNode({
        what: `end to end, containerd ${containerd}`,
        project: 'e2e',
        containerd,
        runtime: 'runc',
        outDir: join(folder, containerd),
        exclude: [...LEFT_OUT[containerd].map((name) => `test/e2e/${name}.test.ts`), ...UNDER_SYSTEMD],
        timeoutMs: 30 * 60_000,
        say,
        signal,
      });
    const underSystemd = (): Promise<Outcome> =>
      testsInNode({
        what: 'end to end, systemd',
        project: 'e2e',
        containerd: '2.1',
        runtime: 'runc',
        init: 'systemd',
        outDir: join(folder, 'systemd'),
        only: [...UNDER_SYSTEMD, ...WITH_EITHER_DRIVER],
        timeoutMs: 30 * 60_000,
        say,
        signal,
      });
    // The newest have most tests: what is left for the end is short. A node has one processor, and so have most files of unit tests.
    const runs = [
      ...releases.toReversed().map((release) => () => inNode(release)),
      ...(releases.includes('2.1') ? [underSystemd] : []),
      () => unitTests(folder, signal),
    ];
    return report('tests', await inPairs(runs, (run) => run()), say);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

process.exitCode = await main();
