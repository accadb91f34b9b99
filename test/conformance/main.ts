import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { constants, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Command, InvalidArgumentError, Option } from 'commander';
import { packageRoot } from '../../tools/download/places.ts';
import type { ContainerdRelease } from '../support/node/index.ts';
import { containerdReleases, NodeError } from '../support/node/index.ts';
import type { CampaignResult } from './campaign.ts';
import { runCampaign } from './campaign.ts';
import type { InsideOrder } from './inside.ts';
import { runInside } from './inside.ts';
import { render, succeeded } from './results/table.ts';

interface Flags {
  readonly containerd?: readonly ContainerdRelease[];
  readonly focus?: string;
  readonly json?: true;
  readonly out?: string;
  readonly shim: string;
}

/** critest calls what 1.6 does not have. */
const releases = containerdReleases.filter((release) => release !== '1.6');
const usual = ['1.7', '2.1'] as const satisfies readonly ContainerdRelease[];
const usageError = 64;
const start = performance.now();

function progress(line: string): void {
  process.stderr.write(`conformance: ${((performance.now() - start) / 1000).toFixed(0).padStart(4)} s: ${line}\n`);
}

const program = new Command('conformance')
  .description(
    'Runs critest directly and through the shim on real containerd, spec by spec, and crictl and ctr through the shim. ' +
      'Fails if a spec passes directly but not through the shim, or if a client gets an unexpected result.',
  )
  .addOption(
    new Option('--containerd <release>', 'containerd release, repeatable (default: 1.7 and 2.1)')
      .choices(releases)
      .argParser((value: string, before: readonly string[] | undefined) => {
        if (!(releases as readonly string[]).includes(value)) {
          throw new InvalidArgumentError(`choose from ${releases.join(', ')}`);
        }
        return [...(before ?? []), value];
      }),
  )
  .option('--focus <regex>', 'run only specs whose full name matches (Go syntax)')
  .option('--json', 'print one JSON object instead of the table')
  .option('--out <folder>', 'store reports and logs in this folder')
  .option('--shim <file>', 'program of the shim', join(packageRoot(), 'dist/cri-resize-shim.js'))
  .exitOverride(({ exitCode }) => process.exit(exitCode === 0 ? 0 : usageError))
  .action(main);

program
  .command('inside', { hidden: true })
  .argument('<order>')
  .action((order: string) => runInside(JSON.parse(order) as InsideOrder));

/**
 * Exit codes: 0 no difference, 1 a difference, 64 invalid arguments, 70 the comparison could not be made, 128 and above
 * stopped by a signal.
 */
async function main(flags: Flags): Promise<void> {
  const shim = resolve(flags.shim);
  if (!existsSync(shim)) throw new NodeError(`the program of the shim ${shim} does not exist: run "npm run build"`);
  const ending = new AbortController();
  // Not `once`, as in endingSignal of test/runner, because execa would end this process first.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => ending.abort(signal));
  const outDir = resolve(flags.out ?? (await mkdtemp(join(tmpdir(), 'cri-resize-shim-conformance-'))));
  let keep = true;
  try {
    const results = await runAll(flags, shim, outDir, ending.signal);
    const ok = succeeded(results);
    process.stdout.write(`${flags.json ? JSON.stringify({ ok, results }, null, 2) : render(results)}\n`);
    keep = !ok;
    process.exitCode = ok ? 0 : 1;
  } catch (error) {
    if (!ending.signal.aborted) throw error;
    const signal = ending.signal.reason as NodeJS.Signals;
    progress(`stopped by ${signal}`);
    keep = false;
    process.exitCode = 128 + constants.signals[signal];
  } finally {
    if (keep || flags.out !== undefined) progress(`reports and logs are in ${outDir}`);
    else await rm(outDir, { recursive: true });
  }
}

/** Runs one containerd after the other, because each uses both cores. */
async function runAll(flags: Flags, shim: string, outDir: string, signal: AbortSignal): Promise<CampaignResult[]> {
  const results: CampaignResult[] = [];
  for (const containerd of new Set(flags.containerd ?? usual)) {
    const say = (line: string): void => progress(`${containerd}: ${line}`);
    const self = fileURLToPath(import.meta.url);
    results.push(await runCampaign({ containerd, focus: flags.focus, shim, self, outDir, say, signal }));
  }
  return results;
}

try {
  await program.parseAsync();
} catch (error) {
  progress(error instanceof NodeError ? error.message : String(error instanceof Error ? error.stack : error));
  process.exitCode = 70;
}
// A stopped node may have left a handle open.
process.exit();
