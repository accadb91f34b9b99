import { resolve } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { operations } from './operations.ts';
import { allBarsMet, table } from './report.ts';
import { run } from './run.ts';

/**
 * npm run bench: each call direct and through the shim, in one run, on this machine. Ratios hold on any machine; times
 * are this one's. Nothing here fails by being slow unless `--check` asks for it.
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
    .description('Measures calls direct and through the shim, in turn, in one run.')
    .option('--json', 'print an array of results')
    .option('--check', 'exit with 1 when a bar is not met')
    .option('--seconds <number>', 'for each call and number in flight, both sides together', seconds, 6)
    .option('--only <op>', 'only calls whose name begins with this')
    .option('--profile <folder>', 'leave a CPU profile of each measured shim in this folder')
    .parse()
    .opts<Flags>();
  const prefix = (flags.only ?? '').toLowerCase();
  const chosen = operations.filter(({ name }) => name.toLowerCase().startsWith(prefix));
  if (chosen.length === 0) throw new Error(`--only: one of ${operations.map(({ name }) => name).join(', ')}`);
  const profile = flags.profile === undefined ? undefined : resolve(flags.profile);
  const { measurements, resources } = await run({ operations: chosen, seconds: flags.seconds, profile, progress });
  const json = (): string => `${JSON.stringify([...measurements, resources], null, 2)}\n`;
  process.stdout.write(flags.json ? json() : table(measurements, resources));
  return flags.check && !allBarsMet(measurements, resources) ? 1 : 0;
}

try {
  // Whatever still runs is ended by the exit (children.ts).
  process.exit(await main());
} catch (error) {
  progress(error instanceof Error ? error.message : String(error));
  process.exit(1);
}
