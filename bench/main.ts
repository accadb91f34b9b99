import { resolve } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { judge } from './bars.ts';
import { operations } from './operations.ts';
import { writePage } from './page/page.ts';
import { json, table } from './report.ts';
import { run } from './run.ts';
import { works } from './work/index.ts';

/**
 * npm run bench: makes each call directly, through the shim, a byte relay and a typed proxy in one run on this machine,
 * and then measures the shim's own work. Ratios are comparable between machines, but times are not. Slow results are a
 * failure only with `--check`.
 */

interface Flags {
  readonly json?: true;
  readonly check?: true;
  readonly write?: true;
  readonly seconds: number;
  readonly only?: string;
  readonly profile?: string;
}

const progress = (text: string): void => void process.stderr.write(`bench: ${text}\n`);

function seconds(text: string): number {
  const value = Number(text);
  if (!(value > 0)) throw new InvalidArgumentError('expected a number of seconds');
  return value;
}

async function main(): Promise<number> {
  const flags = new Command('bench')
    .description(
      'Measures calls directly, through the shim, through a byte relay and through a typed proxy in Go, alternating in ' +
        'one run, and the own work of the shim.',
    )
    .option('--json', 'print the results as one JSON object')
    .option('--check', 'exit with 1 if a limit is exceeded')
    .option('--write', 'replace the figures in docs/performance.md; not with --only')
    .option(
      '--seconds <number>',
      'time for each work, and for each call, client and number in flight, all sides together',
      seconds,
      6,
    )
    .option('--only <op>', 'only calls and works whose name starts with this')
    .option('--profile <folder>', 'write a CPU profile of each measured shim to this folder')
    .parse()
    .opts<Flags>();
  if (flags.write && flags.only !== undefined) throw new Error('--write needs all figures, so it excludes --only');
  const prefix = (flags.only ?? '').toLowerCase();
  const isChosen = ({ name }: { readonly name: string }): boolean => name.toLowerCase().startsWith(prefix);
  const chosen = { operations: operations.filter(isChosen), works: works.filter(isChosen) };
  const names = [...operations, ...works].map(({ name }) => name);
  if (!names.some((name) => isChosen({ name }))) throw new Error(`--only: one of ${names.join(', ')}`);
  const profile = flags.profile === undefined ? undefined : resolve(flags.profile);
  const results = await run({ ...chosen, seconds: flags.seconds, profile, progress });
  process.stdout.write(flags.json ? json(results) : table(results));
  if (flags.write) await writePage(results);
  if (!flags.check) return 0;
  const verdicts = judge(results);
  const missed = verdicts.filter(({ isMet }) => !isMet).length;
  progress(`limits: ${verdicts.length - missed} passed, ${missed} failed`);
  return missed === 0 ? 0 : 1;
}

try {
  // The exit stops everything that still runs (children.ts).
  process.exit(await main());
} catch (error) {
  progress(error instanceof Error ? error.message : String(error));
  process.exit(1);
}
