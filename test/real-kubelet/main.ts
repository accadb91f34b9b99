import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command, Option } from 'commander';
import { prepareKubectl } from '../deploy/kubectl.ts';
import { type ContainerdRelease, NodeError, containerdReleases } from '../support/node/index.ts';
import { endingSignal, progressOf, report, testsInNode } from '../runner/vitest-run.ts';
import { kubeletVersion, obtainKubernetes } from './programs.ts';

/**
 * npm run kubelet: a real kubelet with a real API server resizes pods through the shim in a test node. The last line of
 * output has the numbers of passed and failed tests.
 */

const say = progressOf('kubelet');

const { containerd } = new Command('kubelet')
  .description('Resizes pods with a real kubelet and API server through the shim, in a test node.')
  .addOption(
    new Option('--containerd <release...>', 'containerd releases, one or more')
      .choices(containerdReleases)
      .default(['2.1']),
  )
  .parse()
  .opts<{ readonly containerd: readonly ContainerdRelease[] }>();

async function main(): Promise<number> {
  const signal = endingSignal();
  const folder = await mkdtemp(join(tmpdir(), 'cri-resize-shim-kubelet-'));
  try {
    const programs = await obtainKubernetes(say);
    const kubectl = await prepareKubectl(say);
    const node = {
      project: 'kubelet',
      runtime: 'runc',
      env: { KUBERNETES_PROGRAMS: join(programs.folder, 'bin'), KUBECTL: kubectl },
      timeoutMs: 20 * 60_000,
      say,
      signal,
    } as const;
    const outcomes = [];
    for (const release of containerd)
      outcomes.push(
        await testsInNode({
          ...node,
          what: `kubelet ${kubeletVersion}, containerd ${release}`,
          containerd: release,
          outDir: join(folder, release),
          only: ['test/real-kubelet/kubelet.test.ts'],
        }),
      );
    outcomes.push(
      await testsInNode({
        ...node,
        what: `kubelet ${kubeletVersion} under systemd, and the installer`,
        containerd: '2.1',
        init: 'systemd',
        outDir: join(folder, 'systemd'),
        only: ['test/real-kubelet/installer.test.ts'],
      }),
    );
    return report('kubelet', outcomes, say);
  } catch (error) {
    if (!(error instanceof NodeError)) throw error;
    say(error.message);
    return 70;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

process.exitCode = await main();
