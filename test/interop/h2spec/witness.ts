import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf, NodeError } from '../../../tools/download/errors.ts';
import type { Spec } from '../../conformance/results/results.ts';
import { runToEnd } from '../process.ts';
import { readJUnit, sectionOf } from '../results.ts';
import type { Witness, WitnessRun } from '../witness.ts';

const DEADLINE_MS = 10 * 60_000;

/** Runs h2spec's groups generic, http2 and hpack, with the strict cases. */
export class H2specWitness implements Witness {
  readonly name = 'h2spec';
  readonly leastPassedDirect = 100;

  constructor(private readonly program: string) {}

  async run(run: WitnessRun): Promise<Map<string, Spec>> {
    if (run.only === undefined) return this.#sections(run, 'h2spec', []);
    const cases = new Map<string, Spec>();
    // h2spec selects sections and numbers of cases, and its report has no numbers.
    for (const section of new Set(run.only.map(sectionOf)))
      for (const [name, result] of await this.#sections(run, `h2spec-${section.replace('/', '-')}`, [section]))
        if (run.only.includes(name)) cases.set(name, result);
    return cases;
  }

  async #sections(
    { port, logs, signal }: WitnessRun,
    name: string,
    sections: readonly string[],
  ): Promise<Map<string, Spec>> {
    const report = join(logs, `${name}.xml`);
    const args = ['--host', '127.0.0.1', '--port', String(port), '--strict', '--junit-report', report, ...sections];
    // h2spec also exits with an error if a case fails.
    const { output, failure = 'it has left no report' } = await runToEnd(this.program, args, DEADLINE_MS, signal);
    await writeFile(join(logs, `${name}.log`), output);
    const xml = await readFile(report, 'utf8').catch(() => undefined);
    if (xml === undefined)
      throw new NodeError(`h2spec has no result: ${failure}; the end of its output:\n${endOf(output)}`);
    try {
      return readJUnit(xml);
    } catch (error) {
      throw new NodeError(`${report}: ${messageOf(error)}`);
    }
  }
}

const endOf = (output: string): string => output.trim().split('\n').slice(-10).join('\n');
