#!/usr/bin/env node
import { ResizeClient } from './client.ts';
import { type Invocation, readCommandLine } from './program.ts';
import { socketPath } from './socket.ts';
import { type Context, actions } from './commands/index.ts';
import { tell } from './output/index.ts';
import { Exit } from './command-table.ts';

/** Writes to stderr what went wrong; gives the exit code. */
function complain(error: unknown, endpoint: string): Exit {
  const { lines, exit } = tell(error, endpoint);
  process.stderr.write(lines.map((line) => `resizectl: ${line}\n`).join(''));
  return exit;
}

async function run(invocation: Extract<Invocation, { ask: 'run' }>): Promise<Exit> {
  const { command, args, options, output, endpoint } = invocation;
  const client = new ResizeClient(socketPath('--endpoint', endpoint));
  const context: Context = {
    ...{ client, output },
    print: (text) => void process.stdout.write(text),
    complain: (error) => void complain(error, endpoint),
  };
  try {
    return await actions[command](context, args, options);
  } finally {
    client.close();
  }
}

// Whoever reads our output may have read enough (`| head`).
process.stdout.on('error', () => process.exit(process.exitCode ?? Exit.done));

// Not awaited here: the script of the single executable (src/executable.ts) has no await at its top.
void start();

/** Never rejects. */
async function start(): Promise<void> {
  let endpoint = '';
  try {
    const invocation = readCommandLine(process.argv.slice(2));
    if (invocation.ask === 'print') process.stdout.write(invocation.text);
    else {
      endpoint = invocation.endpoint;
      process.exitCode = await run(invocation);
    }
  } catch (error) {
    process.exitCode = complain(error, endpoint);
  }
}
