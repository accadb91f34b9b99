import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { PassThrough } from 'node:stream';
import { messageOf } from '../../tools/download/errors.ts';
import type { RunOptions } from '../support/node/index.ts';
import { NodeError, runInNode } from '../support/node/index.ts';
import type { Comparison, Specs, Verdict } from './results/results.ts';
import { compare, judge } from './results/results.ts';

/** Runs a suite in two test nodes at the same time, directly on containerd and through the shim, and compares them. */

export type Side = 'direct' | 'through';
/** Tests that differ in the first round run once more in the second. */
export type Round = 'first' | 'second';

export interface NodesCampaign {
  /** The suite and its versions, for errors. */
  readonly what: string;
  readonly node: Pick<RunOptions, 'containerd' | 'runtime' | 'memoryBytes' | 'env' | 'criTools'>;
  /** Returns the command that one side runs in its node. `only`: the specs of the second round. */
  readonly command: (side: Side, only?: readonly string[]) => readonly string[];
  /** Reads the results that the command wrote to the output folder of its node. */
  readonly resultsOf: (folder: string) => Promise<Specs>;
  /** Returns the minimum of specs that pass directly. With fewer, the run says too little about the shim. */
  readonly leastPassedDirect: (specs: number) => number;
  /** Time limit of each side. */
  readonly limitMs: number;
  /** Contains a folder for each round and side. */
  readonly outDir: string;
  readonly say: (line: string) => void;
  readonly signal: AbortSignal;
}

export interface Compared {
  readonly comparison: Comparison;
  readonly verdict: Verdict;
}

/** Runs both sides, and then the specs that differ once more. */
export async function compareInNodes(campaign: NodesCampaign): Promise<Compared> {
  const comparison = compare(...(await inParallel(campaign, 'first')));
  const { passedDirect, specs, differences } = comparison;
  const least = campaign.leastPassedDirect(specs);
  if (passedDirect < least) {
    const found = `only ${passedDirect} of ${specs} specs passed directly, at least ${least} should`;
    throw new NodeError(`${campaign.what}: ${found}; see the logs in ${folderOf(campaign, 'first', 'direct')}`);
  }
  if (differences.length === 0) return { comparison, verdict: { real: [], flaky: [], unsteady: [] } };
  campaign.say(`${differences.length} specs differ: running them once more`);
  const again = await inParallel(
    campaign,
    'second',
    differences.map(({ name }) => name),
  );
  return { comparison, verdict: judge(differences, ...again) };
}

/** The output folder of one side. */
export function folderOf({ outDir }: Pick<NodesCampaign, 'outDir'>, round: Round, side: Side): string {
  return join(outDir, round, side);
}

/** Runs both sides. If one side cannot continue, the node of the other side is stopped too. */
async function inParallel(campaign: NodesCampaign, round: Round, only?: readonly string[]): Promise<[Specs, Specs]> {
  const ending = new AbortController();
  const signal = AbortSignal.any([campaign.signal, ending.signal]);
  const run = async (side: Side): Promise<Specs> => {
    try {
      return await runSide({ ...campaign, signal }, folderOf(campaign, round, side), side, only);
    } catch (error) {
      ending.abort(error);
      throw error;
    }
  };
  const results = await Promise.allSettled([run('direct'), run('through')]);
  // The first failure stopped the other side, so it contains the cause.
  campaign.signal.throwIfAborted();
  if (ending.signal.aborted) throw ending.signal.reason as Error;
  return results.map((result) => (result as PromiseFulfilledResult<Specs>).value) as [Specs, Specs];
}

async function runSide(
  { what, node, command, resultsOf, limitMs, say, signal }: NodesCampaign,
  outDir: string,
  side: Side,
  only: readonly string[] | undefined,
): Promise<Specs> {
  // Removes files of an earlier run, which must not be taken for results of this run.
  await rm(outDir, { recursive: true, force: true });
  await mkdir(outDir, { recursive: true });
  const output = new PassThrough();
  const last: string[] = [];
  createInterface({ input: output }).on('line', (line) => {
    last.push(line);
    if (last.length > 20) last.shift();
    say(`${side}: ${line}`);
  });
  const { exitCode, timedOut } = await runInNode({
    ...node,
    command: command(side, only),
    stdio: { stdout: output, stderr: output },
    outDir,
    startContainerd: false,
    timeoutMs: limitMs,
    progress: say,
    signal,
  });
  if (exitCode !== 0) {
    const why = timedOut ? `took longer than ${limitMs / 60_000} minutes` : `exited with code ${exitCode}`;
    throw new NodeError(`${what}, ${side}: the run in the node ${why}; the end of its output:\n${last.join('\n')}`);
  }
  try {
    return await resultsOf(outDir);
  } catch (error) {
    throw new NodeError(
      `${what}, ${side}: the run has left no results: ${messageOf(error)}; its logs are in ${outDir}`,
    );
  }
}
