#!/usr/bin/env node
import { basename } from 'node:path';
import { Exit, errnoOf, messageOf } from '../core/index.ts';
import { ResizeClient, socketPath } from './client.ts';
import { actions } from './commands/actions.ts';
import type { Context } from './commands/context.ts';
import { reportOf } from './output/failure.ts';
import { type Invocation, parseCommandLine } from './program.ts';

/** Writes an error and its remedy to stderr. Returns the exit code. */
function printError(error: unknown, endpoint: string): Exit {
  const { lines, exit } = reportOf(error, endpoint);
  process.stderr.write(lines.map((line) => `resizectl: ${line}\n`).join(''));
  return exit;
}

const say = (line: string): void => void process.stderr.write(`resizectl: ${line}\n`);

async function run(invocation: Extract<Invocation, { ask: 'run' }>): Promise<Exit> {
  const { command, args, options, endpoint, output, isWide, namespace } = invocation;
  const client = new ResizeClient(socketPath('--endpoint', endpoint), say);
  const context: Context = {
    client,
    output,
    isWide,
    namespace,
    screenRows: () => (process.stdout.isTTY ? process.stdout.rows : undefined),
    print: (text) => void process.stdout.write(text),
    say,
    printError: (error) => void printError(error, endpoint),
  };
  try {
    return await actions[command](context, args, options);
  } finally {
    client.close();
  }
}

process.stdout.on('error', (error) => {
  // The reader may close the pipe early (`| head`).
  if (errnoOf(error) === 'EPIPE') process.exit(process.exitCode ?? Exit.done);
  process.stderr.write(`resizectl: the output cannot be written: ${messageOf(error)}\n`);
  process.exit(Exit.failed);
});
// A reader of the messages that has closed its end of the pipe must not end the command half way.
process.stderr.on('error', () => undefined);

/** The major version that package.json requires (engines). */
const LEAST_NODE = 24;
const OTHER_NODES =
  'in a checkout: ./node_modules/.bin/node dist/resizectl.js; the .deb and the single executable have their own';

/** kubectl finds its plugins by their names (docs/resizectl.md). */
const isPlugin = (path = ''): boolean => /^kubectl-resizectl(?:\.js)?$/.test(basename(path));

// No top-level await: the single executable (src/executable.ts) is a script, not a module.
void start();

/** Never rejects. */
async function start(): Promise<void> {
  // The name of this client in the history. The default would be the name of Node's main thread.
  process.title = 'resizectl';
  if (Number.parseInt(process.versions.node, 10) < LEAST_NODE) {
    say(`Node ${process.versions.node} is too old: run it with Node ${LEAST_NODE} or later (${OTHER_NODES})`);
    process.exitCode = Exit.usage;
    return;
  }
  let endpoint = '';
  if (isPlugin(process.argv[1])) {
    const { runPlugin } = await import('./plugin/plugin.ts');
    const [out, err] = [process.stdout, process.stderr];
    process.exitCode = await runPlugin(process.argv.slice(2), {
      out: (text) => void out.write(text),
      err: (text) => void err.write(text),
    });
    return;
  }
  try {
    const invocation = parseCommandLine(process.argv.slice(2));
    if (invocation.ask === 'print') process.stdout.write(invocation.text);
    else {
      endpoint = invocation.endpoint;
      process.exitCode = await run(invocation);
    }
  } catch (error) {
    process.exitCode = printError(error, endpoint);
  }
}
