import { join } from 'node:path';
import { NodeError } from '../../tools/download/errors.ts';
import type { Specs, Verdict } from '../conformance/results/results.ts';
import { compare, judge } from '../conformance/results/results.ts';
import { Arm, type Side } from './arm.ts';
import type { WitnessResult } from './results.ts';
import type { Witness } from './witness.ts';

export interface Campaign {
  /** grpc-go's interop server. */
  readonly server: string;
  /** The program of the shim. */
  readonly shim: string;
  /** The folder for reports and logs. */
  readonly outDir: string;
  readonly say: (line: string) => void;
  readonly signal: AbortSignal;
}

interface SideResult {
  readonly cases: Specs;
  readonly faults: readonly string[];
}

/** Runs a witness directly and through the shim, and then the cases that differ once more. */
export async function runCampaign(witness: Witness, campaign: Campaign): Promise<WitnessResult> {
  const start = performance.now();
  const first = await bothSides(witness, campaign, 'first');
  const comparison = compare(first.direct.cases, first.through.cases);
  if (comparison.passedDirect < witness.leastPassedDirect) {
    const least = `at least ${witness.leastPassedDirect} should`;
    const found = `only ${comparison.passedDirect} of ${comparison.specs} cases passed directly, ${least}`;
    throw new NodeError(`${witness.name}: ${found}; see its logs in ${campaign.outDir}`);
  }
  const faults = [...first.direct.faults, ...first.through.faults];
  let verdict: Verdict = { real: [], flaky: [], unsteady: [] };
  if (comparison.differences.length > 0) {
    campaign.say(`${witness.name}: ${comparison.differences.length} cases differ: running them once more`);
    const only = comparison.differences.map(({ name }) => name);
    const again = await bothSides(witness, campaign, 'second', only);
    verdict = judge(comparison.differences, again.direct.cases, again.through.cases);
    faults.push(...again.direct.faults, ...again.through.faults);
  }
  return { witness: witness.name, comparison, verdict, faults, seconds: (performance.now() - start) / 1000 };
}

/** One side after the other, so that each has the whole machine. */
async function bothSides(
  witness: Witness,
  campaign: Campaign,
  round: string,
  only?: readonly string[],
): Promise<Record<Side, SideResult>> {
  const run = (side: Side): Promise<SideResult> =>
    runSide(witness, { ...campaign, outDir: join(campaign.outDir, witness.name, round, side) }, side, only);
  return { direct: await run('direct'), through: await run('through') };
}

async function runSide(
  witness: Witness,
  { server, shim, outDir: logs, say, signal }: Campaign,
  side: Side,
  only: readonly string[] | undefined,
): Promise<SideResult> {
  const arm = await Arm.open({ side, server, shim, logs, signal });
  let faults: readonly string[];
  let cases: Specs;
  try {
    cases = await witness.run({ port: arm.port, logs, signal, ...(only !== undefined && { only }) });
  } finally {
    faults = await arm.close();
  }
  const passed = [...cases.values()].filter(({ outcome }) => outcome === 'passed').length;
  say(`${witness.name}, ${side}: ${passed} of ${cases.size} cases passed`);
  return { cases, faults: faults.map((fault) => `${witness.name}, ${side}: ${fault}; see ${logs}`) };
}
