import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { obtain, present } from './cache.ts';
import type { Part } from './cache.ts';
import { NodeError, errnoOf, messageOf } from './errors.ts';
import { timed } from './progress.ts';
import type { Progress } from './progress.ts';

const moduleName = 'sigs.k8s.io/cri-tools';
const moduleVersion = 'v1.36.0';

export type CriTool = 'crictl' | 'critest';

/** Whether crictl and critest are there, or why not. */
export type CriTools =
  | { readonly available: true; readonly part: Part }
  | { readonly available: false; readonly reason: string };

const recipe = { name: 'cri-tools', key: `${moduleName} ${moduleVersion} 2` };

/** crictl and critest, built from their Go module the first time. Without a Go toolchain they are just not there. */
export async function obtainCriTools(cache: string, progress: Progress): Promise<CriTools> {
  const built = await present(cache, recipe);
  if (built) return { available: true, part: built };
  const toolchain = await goVersion();
  if (toolchain === undefined) {
    return {
      available: false,
      reason: 'crictl and critest are not here: building them needs a Go toolchain (command "go")',
    };
  }
  const part = await obtain(cache, { ...recipe, make: (folder) => build(folder, toolchain, progress) }, progress);
  return { available: true, part };
}

async function goVersion(): Promise<string | undefined> {
  try {
    return (await execa('go', ['env', 'GOVERSION'])).stdout;
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw new NodeError(`"go env GOVERSION" failed: ${messageOf(error)}; repair the Go toolchain or take it off PATH`);
  }
}

async function build(folder: string, toolchain: string, progress: Progress): Promise<Record<string, string>> {
  const workspace = await mkdtemp(join(tmpdir(), 'cri-resize-shim-go-'));
  const go = async (...args: string[]): Promise<void> => {
    try {
      await execa('go', args, {
        cwd: workspace,
        stdin: 'ignore',
        // A workspace file or flags of the machine must not change what is built.
        env: { GOFLAGS: '-mod=mod', GOWORK: 'off', GO111MODULE: 'on', GOTOOLCHAIN: 'local', CGO_ENABLED: '0' },
      });
    } catch (error) {
      const advice = `check that the Go module proxy can be reached and that ${toolchain} is new enough`;
      throw new NodeError(`building crictl and critest: "go ${args.join(' ')}" failed; ${advice}\n${messageOf(error)}`);
    }
  };
  const linking = `-ldflags=-s -w -X ${moduleName}/pkg/version.Version=${moduleVersion}`;
  try {
    await timed(
      progress,
      `building crictl and critest ${moduleVersion} with ${toolchain} (one to three minutes)`,
      async () => {
        await go('mod', 'init', 'cri-tools-build');
        await go('get', `${moduleName}@${moduleVersion}`);
        await go('build', '-trimpath', linking, '-o', join(folder, 'bin/crictl'), `${moduleName}/cmd/crictl`);
        // critest is a test binary: its specs live in _test files.
        await go('test', '-c', '-trimpath', linking, '-o', join(folder, 'bin/critest'), `${moduleName}/cmd/critest`);
      },
    );
  } finally {
    await rm(workspace, { recursive: true, force: true });
  }
  return { [moduleName]: moduleVersion, go: toolchain };
}
