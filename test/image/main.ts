import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { Command } from 'commander';
import { ExecaError, execa } from 'execa';
import { version } from '../../src/core/config/version.ts';
import { findBuilder } from '../../tools/packaging/image-builder.ts';
import { endingSignal, progressOf, report, testsInNode } from '../runner/vitest-run.ts';
import { image } from '../support/e2e/installer-pod.ts';
import { NodeError } from '../support/node/index.ts';

/**
 * The suite `image`: builds the image with the first builder that works, and runs it on test nodes as the shim in a
 * container and as the DaemonSet's installer. Ends with a line of how many tests have passed and failed.
 */

const say = progressOf('image');

const { args: builderFlags } = new Command('image')
  .description('Builds the image with docker, podman or buildah, and runs it on a test node.')
  .argument('[flags...]', "more flags of the builder's build command, after --")
  .parse();

/** Builds the image. Returns its archive, in the folder of the packages, which a test node can read. */
async function buildImage(signal: AbortSignal): Promise<string> {
  const builder = await findBuilder();
  const archive = resolve('dist', 'packages', `cri-resize-shim-${version}-image.tar`);
  const run = async (args: readonly string[]): Promise<void> => {
    await execa(builder.program, args, { stdio: ['ignore', 'inherit', 'inherit'], cancelSignal: signal });
  };
  say(`building ${image} with ${builder.program} ...`);
  await run(builder.build(image, builderFlags));
  await mkdir(dirname(archive), { recursive: true });
  // No builder overwrites an existing file.
  await rm(archive, { force: true });
  await run(builder.save(image, archive));
  say(`the image is in ${archive}`);
  return archive;
}

async function main(): Promise<number> {
  const signal = endingSignal();
  const folder = await mkdtemp(join(tmpdir(), 'cri-resize-shim-image-'));
  try {
    const env = { IMAGE_ARCHIVE: await buildImage(signal) };
    const node = {
      project: 'e2e',
      containerd: '2.1',
      runtime: 'runc',
      env,
      say,
      signal,
      timeoutMs: 15 * 60_000,
    } as const;
    const outcomes = [
      await testsInNode({
        ...node,
        what: 'the shim in a container',
        outDir: join(folder, 'shim'),
        only: ['test/e2e/install/image.test.ts'],
      }),
      await testsInNode({
        ...node,
        what: 'the installer',
        init: 'systemd',
        outDir: join(folder, 'installer'),
        only: ['test/e2e/install/installer.test.ts'],
      }),
    ];
    return report('image', outcomes, say);
  } catch (error) {
    if (!(error instanceof NodeError || error instanceof ExecaError)) throw error;
    say(error instanceof ExecaError ? error.shortMessage : error.message);
    return 70;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

process.exitCode = await main();
