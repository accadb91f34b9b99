import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { configurationExample, parseDuration } from '../../config/index.ts';
import { errnoOf, messageOf } from '../../core/errors/index.ts';
import {
  type Ended,
  type Plan,
  Refusal,
  type Site,
  carryOut,
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
const exits: Readonly<Record<Ended, Exit>> = {
  done: Exit.done,
  undone: Exit.infeasible,
  'undo failed': Exit.undoFailed,
};

/** `resizectl install`. Gives the exit code. */
export async function install({ print }: Print, options: InstallOptions): Promise<Exit> {
  return changing({ print }, options, async (site) => {
    const findings = await diagnose(site.node);
    if (worstOf(findings) !== 'failed') return planInstall(site);
    print(doctorText(findings));
    throw new Refusal('this node is not fit for the shim, see above', 'mend what has failed, and try again');
  });
}

/** `resizectl uninstall`. Gives the exit code. */
export async function uninstall({ print }: Print, options: InstallOptions): Promise<Exit> {
  let kept: readonly string[] = [];
  const exit = await changing({ print }, options, async (site) => {
    if (site.node.uid !== 0) throw new Refusal(`uid ${site.node.uid} may not do this`, 'run it as root');
    kept = [site.configFile, site.flagsFile, site.node.stateFolder];
    return planUninstall(site);
  });
  if (exit === Exit.done) print(`kept, if it is there: ${kept.join(', ')}\n`);
  return exit;
}

async function changing(
  { print }: Print,
  options: InstallOptions,
  planOf: (site: Site) => Promise<Plan>,
): Promise<Exit> {
  const ending = new AbortController();
  const end = (signal: NodeJS.Signals): void => ending.abort(new Error(`ended by ${signal}`));
  // Whoever reads our output may have read enough: no node is left half way for that.
  process.stdout.removeAllListeners('error').on('error', () => undefined);
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  for (const signal of signals) process.on(signal, end);
  try {
    const tell = (line: string): void => print(`${line}\n`);
    const { changes, already } = await planOf(thisSite(options, ending.signal));
    for (const line of already) tell(`already: ${line}`);
    if (options.dryRun === true) {
      for (const { says } of changes) tell(`would: ${says}`);
      return Exit.done;
    }
    return exits[await carryOut(changes, tell, ending.signal)];
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    throw new UsageError(`nothing was changed: ${error.message}; what to do: ${error.cure}`, { cause: error });
  } finally {
    for (const signal of signals) process.off(signal, end);
  }
}

function thisSite({ config, kubeletUnit, timeout }: InstallOptions, signal: AbortSignal): Site {
  const timeoutMs = timeout === undefined ? DEFAULT_TIMEOUT_MS : parseDuration(timeout);
  if (timeoutMs === undefined || timeoutMs === 0)
    throw new UsageError(`--timeout: ${JSON.stringify(timeout)} is no duration: want 30s or 2m`);
  const given = config === undefined ? undefined : configurationIn(config);
  if (config !== undefined && given === undefined) throw new UsageError(`--config: ${config} is not there`);
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
    patience: { timeoutMs, signal },
  };
}

/** The text of a configuration; undefined when the file is not there. Throws UsageError. */
function configurationIn(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw new UsageError(`${file} cannot be read: ${messageOf(error)}`, { cause: error });
  }
}

/** What a configuration says of this node. Whether all of it makes sense is for the shim to say. Throws UsageError. */
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
