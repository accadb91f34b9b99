#!/usr/bin/env node
import { ConfigError, type Config, loadConfig, passThroughConfig } from './config/index.ts';
import { messageOf } from './core/errors/index.ts';
import { startDaemon } from './daemon/index.ts';
import { lastBypassTarget } from './systemd/index.ts';

const Exit = { done: 0, failed: 1, usage: 2 } as const;

// No top-level await: the single executable (src/executable.ts) is a script, not a module.
main().then(
  () => process.exit(Exit.done),
  (error: unknown) => process.exit(printError(error)),
);

async function main(): Promise<void> {
  const argv = process.argv.slice(2);
  const invocation = await loadConfig(argv).catch(async (error: unknown) => ({
    ask: 'run' as const,
    ...(await withoutFile(argv, error)),
  }));
  if (invocation.ask === 'print') {
    process.stdout.write(invocation.text);
    return;
  }
  const daemon = await startDaemon(invocation.config, 'problems' in invocation ? invocation.problems : []);
  const signal = await daemon.stopSignal();
  await daemon.stop(signal);
}

/**
 * Returns the configuration that forwards every call, if the unit asks for it (docs/units.md) and the file is invalid: kubelet then has a
 * runtime, and the shim says what is wrong. Throws any other error.
 */
async function withoutFile(
  argv: readonly string[],
  error: unknown,
): Promise<{ config: Config; problems: readonly string[] }> {
  const isAllowed = process.env['CRI_RESIZE_SHIM_INVALID_CONFIG'] === 'pass-through';
  if (!isAllowed || !(error instanceof ConfigError) || error.source !== 'file') throw error;
  const config = passThroughConfig(argv, error, await lastBypassTarget(process.env));
  printError(error);
  return { config, problems: error.problems };
}

/** Writes the error to stderr. Returns the exit code. */
function printError(error: unknown): number {
  const lines = error instanceof ConfigError ? error.problems : [messageOf(error)];
  for (const line of lines) process.stderr.write(`cri-resize-shim: ${line}\n`);
  if (!(error instanceof ConfigError) || error.source !== 'usage') return Exit.failed;
  process.stderr.write('cri-resize-shim: --help lists the flags\n');
  return Exit.usage;
}
