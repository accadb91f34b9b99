import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { containerdReleases } from './node/index.ts';
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

/** What depends on the kernel, Kubernetes or the command line, and on no release of containerd. */
const OF_ANY_RELEASE = ['volume*', 'tmpfs', 'foresight*', 'foreign-remount', 'kubernetes', 'resizectl'] as const;

async function unitTests(folder: string): Promise<Outcome> {
  say('unit and property tests ...');
  const results = join(folder, 'unit.json');
  await execa(vitest, flags('unit', results), { stdio: ['ignore', 'inherit', 'inherit'], reject: false });
  return count('unit', results);
}

async function main(): Promise<number> {
  const asked = process.argv.flatMap((argument, at, all) => (argument === '--containerd' ? [all[at + 1]] : []));
  const releases = containerdReleases.filter((release) => asked.length === 0 || asked.includes(release));
  const signal = endingSignal();
  const folder = await mkdtemp(join(tmpdir(), 'cri-resize-shim-test-'));
  try {
    const unit = await unitTests(folder);
    const endToEnd = await inPairs(releases, (containerd) =>
      testsInNode({
        what: `end to end, containerd ${containerd}`,
        project: 'e2e',
        containerd,
        runtime: 'runc',
        outDir: join(folder, containerd),
        // A node of 1.6 has an older runtime, and all else as the others have it: what is not about the runtime is seen on those.
        exclude: containerd === '1.6' ? OF_ANY_RELEASE.map((name) => `test/e2e/${name}.test.ts`) : [],
        timeoutMs: 20 * 60_000,
        say,
        signal,
      }),
    );
    return report('tests', [unit, ...endToEnd], say);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

process.exitCode = await main();
