import { mkdir, readFile, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { LineFollower } from '../../runner/line-follower.ts';
import type { Outcome } from '../../runner/vitest-run.ts';
import { type ContainerdRelease, runInNode } from '../../support/node/index.ts';
import type { Side } from '../table/row.ts';
import type { Results, ScenarioResult } from './result.ts';
import { faultsOf } from './result.ts';
import { type Scenario, scenarios } from './scenarios.ts';

/** Two test nodes run the same scenarios at the same time, one without and one with the shim. */

export interface VpaRun {
  readonly containerd: ContainerdRelease;
  readonly env: Readonly<Record<string, string>>;
  /** Destination of the logs and results of both nodes. */
  readonly folder: string;
  readonly runs: number;
  /** Intervals of the updater's rounds, in seconds. */
  readonly intervals: readonly number[];
  readonly only: readonly Scenario[];
  readonly say: (text: string) => void;
  readonly signal: AbortSignal;
}

export async function runSides(run: VpaRun): Promise<Results> {
  const [direct, shim] = await Promise.all([runSide(run, 'direct'), runSide(run, 'shim')]);
  return { direct, shim };
}

/**
 * Returns an outcome for each interval. Each scenario through the shim is a test. A scenario without a result on either
 * side has failed.
 */
export function outcomesOf(results: Results, { only, intervals }: Pick<VpaRun, 'only' | 'intervals'>): Outcome[] {
  return intervals.map((interval) => {
    const found = (side: Side, name: string): ScenarioResult | undefined =>
      results[side].find((one) => one.scenario === name && one.interval === interval);
    const failures = only.flatMap(({ name, title, fits }) => {
      const [direct, shim] = [found('direct', name), found('shim', name)];
      const faults = [
        ...(direct === undefined || direct.pods.length === 0 ? ['no result without the shim'] : []),
        ...(shim === undefined ? ['no result through the shim'] : faultsOf(shim, fits)),
      ];
      return faults.length === 0 ? [] : [{ name: title, what: faults.join('\n') }];
    });
    return { what: `VPA, rounds of ${interval} s`, passed: only.length - failures.length, failures };
  });
}

async function runSide(run: VpaRun, side: Side): Promise<readonly ScenarioResult[]> {
  const { containerd, env, runs, intervals, only, say, signal } = run;
  const outDir = join(run.folder, side);
  const what = side === 'direct' ? 'without the shim' : 'through the shim';
  // Files of an earlier run must not pass for a result of this one.
  await rm(outDir, { recursive: true, force: true });
  await mkdir(outDir, { recursive: true });
  const follower = new LineFollower(join(outDir, 'progress'), (line) => say(`${what}: ${line}`));
  const program = join(dirname(fileURLToPath(import.meta.url)), 'vpa-inside.js');
  const names = only.map(({ name }) => name).join(',');
  say(`${what}: booting a node`);
  try {
    await runInNode({
      containerd,
      runtime: 'runc',
      command: [process.execPath, program, side, String(runs), intervals.join(','), names],
      env,
      outDir,
      progress: say,
      timeoutMs: timeoutOf(run),
      signal,
    });
  } catch (error) {
    say(`${what}: ${error instanceof Error ? error.message : String(error)}`);
  } finally {
    follower.close();
  }
  const text = await readFile(join(outDir, 'results.json'), 'utf8').catch(() => '[]');
  return JSON.parse(text) as ScenarioResult[];
}

/** Returns a time limit for the node: for each batch, a minute to prepare, four rounds, and a minute to end. */
function timeoutOf({ runs, intervals }: VpaRun): number {
  const batchesAtMost = scenarios.length;
  const seconds = intervals.reduce((sum, interval) => sum + runs * batchesAtMost * (4 * interval + 120), 300);
  return seconds * 1000;
}
