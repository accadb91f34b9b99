import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { constants, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { WitnessResult } from '../interop/results.ts';
import { countsOf, render } from '../interop/results.ts';
import { endingSignal } from '../runner/vitest-run.ts';
import { NodeError } from '../support/node/index.ts';

/** The parts of a command that compares the results of a suite with and without the shim. */
export interface ComparedCommand {
  /** As in `npm run NAME`. */
  readonly name: string;
  /** The program of the shim. */
  readonly shim: string;
  /** Where reports and logs are left. Default: a temporary folder, which stays only if something differs. */
  readonly out: string | undefined;
  /** Specs that may fail through the shim, with the reason. */
  readonly accepted: ReadonlyMap<string, string>;
  readonly say: (line: string) => void;
  /** Returns the results, and the versions of the programs that ran. */
  readonly run: (
    shim: string,
    outDir: string,
    signal: AbortSignal,
  ) => Promise<{ readonly results: readonly WitnessResult[]; readonly testedWith: string }>;
}

/**
 * Runs the suite and prints the results.
 * @returns exit code: 0 no difference, 1 a difference, 70 the comparison could not be made, 130 ended by a signal
 */
export async function runCompared({ name, shim, out, accepted, say, run }: ComparedCommand): Promise<number> {
  const signal = endingSignal();
  const outDir = resolve(out ?? (await mkdtemp(join(tmpdir(), `cri-resize-shim-${name}-`))));
  const program = resolve(shim);
  let isKept = true;
  try {
    if (!existsSync(program))
      throw new NodeError(`the program of the shim ${program} does not exist: run "npm run build"`);
    const { results, testedWith } = await run(program, outDir, signal);
    const { passed, failed } = countsOf(results, accepted);
    process.stdout.write(`${render(results, accepted)}\n\ntested with: ${testedWith}\n`);
    process.stdout.write(`${name}: ${passed} passed, ${failed} failed\n`);
    isKept = failed > 0;
    return failed === 0 ? 0 : 1;
  } catch (error) {
    isKept = !signal.aborted;
    if (signal.aborted) return 128 + constants.signals.SIGINT;
    if (!(error instanceof NodeError)) throw error;
    say(error.message);
    return 70;
  } finally {
    if (isKept || out !== undefined) say(`reports and logs are in ${outDir}`);
    else await rm(outDir, { recursive: true, force: true });
  }
}
