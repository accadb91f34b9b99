import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { createInterface } from 'node:readline';
import { NodeError, runInNode } from '../support/node/index.ts';
import type { ContainerdRelease, Runtime } from '../support/node/index.ts';
import { checkResults } from './checks/checks.ts';
import type { CheckResult } from './checks/checks.ts';
import { compare, focusOn, judge } from './results/compare.ts';
import type { Comparison, Specs, Verdict } from './results/compare.ts';
import { reportName } from './checks/critest.ts';
import { leastPassedDirect } from './results/known.ts';
import { checksName } from './inside.ts';
import type { InsideOrder, Side } from './inside.ts';
import { readReport } from './results/report.ts';

export interface Campaign {
  readonly containerd: ContainerdRelease;
  readonly focus: string | undefined;
  /** The program of the shim. */
  readonly shim: string;
  /** This tool's own program, which also runs in the node. */
  readonly self: string;
  /** The folder for reports and logs of each run. */
  readonly outDir: string;
  readonly say: (line: string) => void;
  readonly signal: AbortSignal;
}

export interface CampaignResult {
  readonly containerd: ContainerdRelease;
  readonly runtime: Runtime;
  readonly comparison: Comparison;
  readonly verdict: Verdict;
  readonly checks: readonly CheckResult[];
  readonly seconds: number;
}

/** Each containerd with the runc of its time. The newer one has more features, so more specs run. */
export const runtimeOf = (containerd: ContainerdRelease): Runtime =>
  containerd.startsWith('1.') ? 'runc' : 'runc-1.3';
const runLimitMs = 45 * 60_000;

/**
 * Runs critest directly and through the shim in two nodes concurrently, and then the specs that differ once more,
 * alone.
 */
export async function runCampaign(campaign: Campaign): Promise<CampaignResult> {
  const start = performance.now();
  const focus = campaign.focus ?? null;
  const [direct, through] = await inParallel(campaign, 'first', (side) => ({ side, focus, clients: true }));
  const comparison = compare(direct, through);
  const least = campaign.focus === undefined ? leastPassedDirect : 1;
  if (comparison.passedDirect < least) {
    const so = `only ${comparison.passedDirect} of ${comparison.specs} specs passed directly, at least ${least} should`;
    throw new NodeError(`containerd ${campaign.containerd}: ${so}; see critest.log of the direct run`);
  }
  let verdict: Verdict = { real: [], flaky: [], unsteady: [] };
  if (comparison.differences.length > 0) {
    const names = comparison.differences.map(({ name }) => name);
    campaign.say(`${names.length} specs differ: running them once more, alone`);
    const again = await inParallel(campaign, 'second', (side) => ({ side, focus: focusOn(names), clients: false }));
    verdict = judge(comparison.differences, ...again);
  }
  return {
    containerd: campaign.containerd,
    runtime: runtimeOf(campaign.containerd),
    comparison,
    verdict,
    checks: checkResults.parse(
      JSON.parse(await readFile(join(folder(campaign, 'first', 'through'), checksName), 'utf8')),
    ),
    seconds: Math.round((performance.now() - start) / 1000),
  };
}

type Round = 'first' | 'second';

function folder(campaign: Campaign, round: Round, side: Side): string {
  return join(campaign.outDir, campaign.containerd, round, side);
}

/** Runs both sides. If one cannot continue, the node of the other one is stopped too. */
async function inParallel(
  campaign: Campaign,
  round: Round,
  order: (side: Side) => Omit<InsideOrder, 'shim'>,
): Promise<[Specs, Specs]> {
  const ending = new AbortController();
  const signal = AbortSignal.any([campaign.signal, ending.signal]);
  const run = async (side: Side): Promise<Specs> => {
    try {
      return await runSide({ ...campaign, signal }, folder(campaign, round, side), {
        ...order(side),
        shim: campaign.shim,
      });
    } catch (error) {
      ending.abort(error);
      throw error;
    }
  };
  const results = await Promise.allSettled([run('direct'), run('through')]);
  // The first failure has stopped the other side, so it has the cause.
  campaign.signal.throwIfAborted();
  if (ending.signal.aborted) throw ending.signal.reason as Error;
  return results.map((result) => (result as PromiseFulfilledResult<Specs>).value) as [Specs, Specs];
}

async function runSide(campaign: Campaign, outDir: string, order: InsideOrder): Promise<Specs> {
  await mkdir(outDir, { recursive: true });
  const output = new PassThrough();
  const last: string[] = [];
  createInterface({ input: output }).on('line', (line) => {
    last.push(line);
    if (last.length > 20) last.shift();
    campaign.say(`${order.side}: ${line}`);
  });
  const { exitCode, timedOut } = await runInNode({
    containerd: campaign.containerd,
    runtime: runtimeOf(campaign.containerd),
    command: [process.execPath, campaign.self, 'inside', JSON.stringify(order)],
    stdio: { stdout: output, stderr: output },
    outDir,
    startContainerd: false,
    timeoutMs: runLimitMs,
    progress: campaign.say,
    signal: campaign.signal,
  });
  if (exitCode !== 0) {
    const why = timedOut ? `took longer than ${runLimitMs / 60_000} minutes` : `exited with code ${exitCode}`;
    throw new NodeError(
      `containerd ${campaign.containerd}, ${order.side}: the run in the node ${why}; the end of its output:\n${last.join('\n')}`,
    );
  }
  return readReport(await readFile(join(outDir, reportName), 'utf8'));
}
