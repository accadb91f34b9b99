#!/usr/bin/env node
import { ConfigError, loadConfig } from './config/index.ts';
import { messageOf } from './core/errors/index.ts';
import { startDaemon } from './daemon/index.ts';

const Exit = { done: 0, failed: 1, usage: 2 } as const;

// No top-level await: the single executable (src/executable.ts) is a script, not a module.
main().then(
  () => process.exit(Exit.done),
  (error: unknown) => process.exit(printError(error)),
);

async function main(): Promise<void> {
  const invocation = await loadConfig(process.argv.slice(2));
  if (invocation.ask === 'print') {
    process.stdout.write(invocation.text);
    return;
  }
  const daemon = await startDaemon(invocation.config);
  const signal = await daemon.stopSignal();
  await daemon.stop(signal);
}

/** Writes the error to stderr. Returns the exit code. */
function printError(error: unknown): number {
  const lines = error instanceof ConfigError ? error.problems : [messageOf(error)];
  for (const line of lines) process.stderr.write(`cri-resize-shim: ${line}\n`);
  if (!(error instanceof ConfigError) || error.source !== 'usage') return Exit.failed;
  process.stderr.write('cri-resize-shim: --help lists the flags\n');
  return Exit.usage;
}
