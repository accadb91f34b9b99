import { resolve } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { operations } from './operations.ts';
import { allBarsMet, json, table } from './report.ts';
import { run } from './run.ts';
import { works } from './work/index.ts';

/**
 * npm run bench: each call direct and through the shim, in one run, on this machine, then what the shim does by itself. Ratios hold on
 * any machine; times are this one's. Nothing here fails by being slow unless `--check` asks for it.
 */

interface Flags {
  readonly json?: true;
  readonly check?: true;
  readonly seconds: number;
  readonly only?: string;
  readonly profile?: string;
}

const progress = (text: string): void => void process.stderr.write(`bench: ${text}\n`);

function seconds(text: string): number {
  const value = Number(text);
  if (!(value > 0)) throw new InvalidArgumentError('write a number of seconds');
  return value;
}

async function main(): Promise<number> {
  const flags = new Command('bench')
    .description('Measures calls direct and through the shim, in turn, in one run, and what the shim does by itself.')
    .option('--json', 'print an array of results')
    .option('--check', 'exit with 1 when a bar is not met')
    .option('--seconds <number>', 'for each work, and each call and number in flight, both sides together', seconds, 6)
    .option('--only <op>', 'only calls and works whose name begins with this')
    .option('--profile <folder>', 'leave a CPU profile of each measured shim in this folder')
    .parse()
    .opts<Flags>();
  const prefix = (flags.only ?? '').toLowerCase();
  const isChosen = ({ name }: { readonly name: string }): boolean => name.toLowerCase().startsWith(prefix);
  const chosen = { operations: operations.filter(isChosen), works: works.filter(isChosen) };
  const names = [...operations, ...works].map(({ name }) => name);
  if (!names.some((name) => isChosen({ name }))) throw new Error(`--only: one of ${names.join(', ')}`);
  const profile = flags.profile === undefined ? undefined : resolve(flags.profile);
  const results = await run({ ...chosen, seconds: flags.seconds, profile, progress });
  process.stdout.write(flags.json ? json(results) : table(results));
  return flags.check && !allBarsMet(results) ? 1 : 0;
}

try {
  // Whatever still runs is ended by the exit (children.ts).
  process.exit(await main());
} catch (error) {
  progress(error instanceof Error ? error.message : String(error));
  process.exit(1);
}
