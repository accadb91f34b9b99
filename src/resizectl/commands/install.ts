import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { configurationExample, parseDuration } from '../../config/index.ts';
import { errnoOf, messageOf } from '../../core/errors/index.ts';
import {
  type ChangesResult,
  type Plan,
  Refusal,
  type Site,
  applyChanges,
  diagnose,
  planInstall,
  planUninstall,
  worstOf,
} from '../../install/node/index.ts';
import { Exit } from '../command-table.ts';
import type { Context, InstallOptions } from './context.ts';
import { doctorText } from './doctor.ts';
import { thisNode, thisProgram } from './this-node.ts';
import { UsageError } from '../output/index.ts';

type Print = Pick<Context, 'print'>;

const CONFIG_FILE = '/etc/cri-resize-shim/config.yaml';
const DEFAULT_TIMEOUT_MS = 60_000;
const exits: Readonly<Record<ChangesResult, Exit>> = {
  done: Exit.done,
  undone: Exit.infeasible,
  'undo failed': Exit.undoFailed,
};

/** `resizectl install`. Returns the exit code. */
export async function install({ print }: Print, options: InstallOptions): Promise<Exit> {
  return changing({ print }, options, async (site) => {
    const findings = await diagnose(site.node);
    if (worstOf(findings) !== 'failed') return planInstall(site);
    print(doctorText(findings));
    throw new Refusal('a check failed, see above', 'fix the failed checks, and try again');
  });
}

/** `resizectl uninstall`. Returns the exit code. */
export async function uninstall({ print }: Print, options: InstallOptions): Promise<Exit> {
  let kept: readonly string[] = [];
  const exit = await changing({ print }, options, async (site) => {
    if (site.node.uid !== 0)
      throw new Refusal(`running as uid ${site.node.uid}, not as root`, 'run the command as root');
    kept = [site.configFile, site.flagsFile, site.node.stateFolder];
    return planUninstall(site);
  });
  if (exit === Exit.done) print(`kept, if present: ${kept.join(', ')}\n`);
  return exit;
}

async function changing(
  { print }: Print,
  options: InstallOptions,
  planOf: (site: Site) => Promise<Plan>,
): Promise<Exit> {
  const ending = new AbortController();
  const end = (signal: NodeJS.Signals): void => ending.abort(new Error(`interrupted by ${signal}`));
  // A closed pipe (`| head`) must not end the process half way.
  process.stdout.removeAllListeners('error').on('error', () => undefined);
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  for (const signal of signals) process.on(signal, end);
  try {
    const printLine = (line: string): void => print(`${line}\n`);
    const { changes, already } = await planOf(thisSite(options, ending.signal));
    for (const line of already) printLine(`already: ${line}`);
    if (options.dryRun === true) {
      for (const { description } of changes) printLine(`would: ${description}`);
      return Exit.done;
    }
    return exits[await applyChanges(changes, printLine, ending.signal)];
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    throw new UsageError(`nothing was changed: ${error.message}; what to do: ${error.remedy}`, { cause: error });
  } finally {
    for (const signal of signals) process.off(signal, end);
  }
}

function thisSite({ config, kubeletUnit, timeout }: InstallOptions, signal: AbortSignal): Site {
  const timeoutMs = timeout === undefined ? DEFAULT_TIMEOUT_MS : parseDuration(timeout);
  if (timeoutMs === undefined || timeoutMs === 0)
    throw new UsageError(
      `--timeout: invalid duration ${JSON.stringify(timeout)}: expected a duration such as 30s or 2m`,
    );
  const given = config === undefined ? undefined : configurationIn(config);
  if (config !== undefined && given === undefined) throw new UsageError(`--config: no such file: ${config}`);
  const settings = settingsOf(given ?? configurationIn(CONFIG_FILE) ?? '', config ?? CONFIG_FILE);
  const to = '/usr/local/lib/cri-resize-shim';
  return {
    node: thisNode({ ...settings, ...(kubeletUnit !== undefined && { kubeletUnit }) }),
    program: thisProgram(to),
    to,
    commandFile: '/usr/local/bin/resizectl',
    unitFolder: '/etc/systemd/system',
    configFile: CONFIG_FILE,
    configText: given ?? configurationExample({ isCommentedOut: true }),
    isConfigGiven: given !== undefined,
    flagsFile: '/etc/default/cri-resize-shim',
    wait: { timeoutMs, signal },
  };
}

/** Reads a configuration file; returns undefined if it does not exist. Throws UsageError if it cannot be read. */
function configurationIn(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw new UsageError(`${file} cannot be read: ${messageOf(error)}`, { cause: error });
  }
}

/** Reads the settings that matter to the installation. The shim itself validates the rest. Throws UsageError. */
function settingsOf(text: string, file: string): { containerRuntimeEndpoint?: string; stateFolder?: string } {
  try {
    const read: unknown = parse(text);
    const textOf = (key: string): string | undefined => {
      const value: unknown = typeof read === 'object' && read !== null ? Reflect.get(read, key) : undefined;
      return typeof value === 'string' ? value : undefined;
    };
    const [containerRuntimeEndpoint, stateFolder] = [textOf('containerRuntimeEndpoint'), textOf('stateFolder')];
    return {
      ...(containerRuntimeEndpoint !== undefined && { containerRuntimeEndpoint }),
      ...(stateFolder !== undefined && { stateFolder }),
    };
  } catch (error) {
    throw new UsageError(`${file} cannot be read: ${messageOf(error)}`, { cause: error });
  }
}
