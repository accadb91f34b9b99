import { mkdtemp, rm } from 'node:fs/promises';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command, Option } from 'commander';
import { endingSignal, progressOf, report, testsInNode } from '../runner/vitest-run.ts';
import { type ContainerdRelease, containerdReleases, type KernelName } from '../support/node/index.ts';

const parts = ['own', 'end-to-end', 'earlier'] as const;
type Part = (typeof parts)[number];

interface Flags {
  readonly containerd: ContainerdRelease;
  readonly only?: Part;
  readonly title?: string;
}

/**
 * End-to-end tests of the kernel's behavior: limits, usage, reclaim, mounts. The results of all others do not depend on
 * the kernel. resize/swap and resize/all-fields expect a node without a swap disk, cpuset and hugetlb; the tests of
 * this folder replace them.
 */
const END_TO_END = [
  ...['node/node', 'resize/resize', 'resize/memory-qos', 'resize/reclaim'],
  ...['volumes/volumes', 'volumes/tmpfs', 'volumes/foreign-remount', 'foresight/foresight'],
].map((name) => `test/e2e/${name}.test.ts`);

/** End-to-end tests of what depends on the release of a stock kernel. */
const EARLIER = ['test/e2e/volumes/tmpfs.test.ts'];

/** qemu may translate every instruction. */
const LIMIT_MS = 90 * 60_000;
const say = progressOf('stock-kernel');

const program = new Command('stock-kernel')
  .description(
    "Runs the tests that need Debian's kernel (cpuset, huge pages, swap on a disk, two processors), and end-to-end tests of what a " +
      'kernel decides, in a test node with that kernel; those of volumes with an earlier one, too.',
  )
  .addOption(new Option('--containerd <release>', 'containerd release').choices(containerdReleases).default('2.1'))
  .addOption(new Option('--only <part>', 'one part of the tests').choices(parts))
  .option('-t, --title <text>', 'only tests with this text in their title')
  .parse();

/** Exit codes: 0 all passed, 1 some failed, 130 ended by a signal. */
async function main({ containerd, only, title }: Flags): Promise<number> {
  const signal = endingSignal();
  const folder = await mkdtemp(join(tmpdir(), 'cri-resize-shim-stock-kernel-'));
  const inNode = (what: string, project: string, files: readonly string[], kernel: KernelName = 'debian') =>
    testsInNode({
      what: `${what}, containerd ${containerd}`,
      project,
      containerd,
      runtime: 'runc',
      kernel,
      only: files,
      title,
      outDir: join(folder, `${kernel}-${project}`),
      timeoutMs: LIMIT_MS,
      say,
      signal,
    });
  const runs = (part: Part): boolean => (only ?? part) === part && !signal.aborted;
  try {
    const outcomes = [
      ...(runs('own') ? [await inNode('stock kernel', 'stock-kernel', [])] : []),
      ...(runs('end-to-end') ? [await inNode('end to end', 'e2e', END_TO_END)] : []),
      ...(runs('earlier') ? [await inNode('end to end, kernel 6.16', 'e2e', EARLIER, 'debian-6.16')] : []),
    ];
    return signal.aborted ? 128 + constants.signals.SIGINT : report('stock kernel', outcomes, say);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

process.exitCode = await main(program.opts<Flags>());
