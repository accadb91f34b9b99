import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ContainerdRelease, Runtime } from '../support/node/index.ts';
import type { CheckResult } from './checks/checks.ts';
import { checkResults } from './checks/checks.ts';
import { benchmarkReportName, reportName } from './checks/critest.ts';
import type { InsideOrder } from './inside.ts';
import { checksName } from './inside.ts';
import { compareInNodes, folderOf, type NodesCampaign, type Side } from './nodes.ts';
import type { Comparison, Specs, Verdict } from './results/results.ts';
import { focusOn, leastPassedDirect, readReport } from './results/results.ts';

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

/** Returns the runc of the release's time. The newer release has more features, so more specs run. */
export const runtimeOf = (containerd: ContainerdRelease): Runtime =>
  containerd.startsWith('1.') ? 'runc' : 'runc-1.3';
const runLimitMs = 45 * 60_000;
/** critest selects its benchmarks by this expression. */
const isBenchmark = /benchmark/;

/**
 * Runs critest directly and through the shim in two nodes concurrently, and then the specs that differ once more,
 * alone.
 */
export async function runCampaign(campaign: Campaign): Promise<CampaignResult> {
  const { containerd, say, signal } = campaign;
  const start = performance.now();
  const nodes: NodesCampaign = {
    what: `containerd ${containerd}`,
    node: { containerd, runtime: runtimeOf(containerd), criTools: true },
    command: (side, only) => [process.execPath, campaign.self, 'inside', JSON.stringify(orderOf(campaign, side, only))],
    resultsOf,
    leastPassedDirect: () => (campaign.focus === undefined ? leastPassedDirect : 1),
    limitMs: runLimitMs,
    outDir: join(campaign.outDir, containerd),
    say,
    signal,
  };
  const { comparison, verdict } = await compareInNodes(nodes);
  return {
    containerd,
    runtime: runtimeOf(containerd),
    comparison,
    verdict,
    checks: checkResults.parse(
      JSON.parse(await readFile(join(folderOf(nodes, 'first', 'through'), checksName), 'utf8')),
    ),
    seconds: Math.round((performance.now() - start) / 1000),
  };
}

/** The specs, and the benchmarks if they ran. */
async function resultsOf(folder: string): Promise<Specs> {
  const specs = readReport(await readFile(join(folder, reportName), 'utf8'));
  const benchmarks = join(folder, benchmarkReportName);
  return existsSync(benchmarks) ? new Map([...specs, ...readReport(await readFile(benchmarks, 'utf8'))]) : specs;
}

function orderOf({ focus, shim }: Campaign, side: Side, only: readonly string[] | undefined): InsideOrder {
  return only === undefined
    ? { side, shim, focus: focus ?? null, benchmarks: focus === undefined || isBenchmark.test(focus), clients: true }
    : { side, shim, focus: focusOn(only), benchmarks: only.some((name) => isBenchmark.test(name)), clients: false };
}
