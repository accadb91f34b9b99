import { mkdtemp, rm } from 'node:fs/promises';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command, Option } from 'commander';
import { endingSignal, inPairs, progressOf, report, testsInNode } from '../runner/vitest-run.ts';
import {
  type ContainerdRelease,
  containerdReleases,
  type Init,
  inits,
  type Runtime,
  runtimes,
} from '../support/node/index.ts';

interface Flags {
  readonly containerd: readonly ContainerdRelease[];
  readonly runtime: readonly Runtime[];
  readonly init: readonly Init[];
}

const usual: readonly ContainerdRelease[] = ['1.7', '2.1'];
const say = progressOf('matrix');

/**
 * Whether the matrix runs in this combination. With systemd one node is enough, since cgroup writes do not depend on
 * the runtime.
 */
const isInMatrix = (release: ContainerdRelease, runtime: Runtime, init: Init): boolean =>
  init === 'plain' || (release === '2.1' && runtime === 'runc');

const program = new Command('matrix')
  .description(
    'Runs all resize cases of KEP-1287 as kubelet and crictl do, and by ResizePod, in a test node of each containerd ' +
      'and OCI runtime. Ends with a line with the numbers of passed and failed tests.',
  )
  .addOption(new Option('--containerd <release...>', 'containerd releases').choices(containerdReleases).default(usual))
  .addOption(new Option('--runtime <name...>', 'OCI runtimes').choices(runtimes).default(['runc', 'crun']))
  .addOption(new Option('--init <name...>', 'init systems of the node').choices(inits).default([...inits]))
  .parse();

/** Exit codes: 0 all passed, 1 some failed, 130 ended by a signal. */
async function main({ containerd, runtime, init }: Flags): Promise<number> {
  // Nodes with systemd take longest, so they start first.
  const nodes = inits
    .toReversed()
    .flatMap((first) =>
      containerd.flatMap((release) =>
        runtime
          .filter((name) => init.includes(first) && isInMatrix(release, name, first))
          .map((name) => ({ containerd: release, runtime: name, init: first })),
      ),
    );
  const signal = endingSignal();
  const folder = await mkdtemp(join(tmpdir(), 'cri-resize-shim-matrix-'));
  try {
    const outcomes = await inPairs(nodes, (node) =>
      testsInNode({
        ...node,
        what: `containerd ${node.containerd} with ${node.runtime}${node.init === 'systemd' ? ' under systemd' : ''}`,
        project: 'matrix',
        outDir: join(folder, `${node.containerd}-${node.runtime}-${node.init}`),
        timeoutMs: 25 * 60_000,
        say,
        signal,
      }),
    );
    return signal.aborted ? 128 + constants.signals.SIGINT : report('matrix', outcomes, say);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

process.exitCode = await main(program.opts<Flags>());
