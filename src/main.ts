#!/usr/bin/env node
import {
  type Config,
  ConfigError,
  errorLines,
  lastBypassTarget,
  loadConfig,
  messageOf,
  passThroughConfig,
} from './core/index.ts';
import { endProcess, failedWith, type ProcessEnd, startDaemon } from './daemon/index.ts';

const Exit = { done: 0, failed: 1, usage: 2 } as const;

// No top-level await: the single executable (src/executable.ts) is a script, not a module.
void main()
  .catch((error: unknown) => failedWith(printError(error)))
  .then(endProcess);

async function main(): Promise<ProcessEnd> {
  const argv = process.argv.slice(2);
  const invocation = await loadConfig(argv).catch(async (error: unknown) => ({
    ask: 'run' as const,
    ...(await withoutFile(argv, error)),
  }));
  if (invocation.ask === 'print') {
    process.stdout.write(invocation.text);
    return { exitCode: Exit.done, signal: 'SIGTERM' };
  }
  const daemon = await startDaemon(invocation.config, 'problems' in invocation ? invocation.problems : []);
  const signal = await daemon.stopSignal();
  await daemon.stop(signal);
  return { exitCode: Exit.done, signal };
}

/**
 * Returns the configuration that forwards every call if the unit allows it (docs/units.md) and the file is invalid:
 * kubelet then has a runtime, and the shim reports the problems. Throws any other error.
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

/** Writes the error to stderr, in the journal with the priority of an error. Returns the exit code. */
function printError(error: unknown): number {
  const lines = error instanceof ConfigError ? error.problems : [messageOf(error)];
  const say = (line: string): void =>
    void process.stderr.write(errorLines(`cri-resize-shim: ${line}\n`, process.stderr.fd));
  for (const line of lines) say(line);
  if (!(error instanceof ConfigError) || error.source !== 'usage') return Exit.failed;
  say('--help lists the flags');
  return Exit.usage;
}
