import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { ConfigError, configurationExample, effectiveSettings } from '../../config/index.ts';
import { errnoOf, messageOf } from '../../core/errors/index.ts';
import {
  type Plan,
  Refusal,
  type Site,
  diagnose,
  planInstall,
  planUninstall,
  worstOf,
} from '../../install/node/index.ts';
import { Exit } from '../command-table/index.ts';
import { changing, timeoutOf } from './changing.ts';
import type { Context, InstallOptions } from './context.ts';
import { doctorText } from './doctor.ts';
import { CONFIG_FILE, FLAGS_FILE, thisNode, thisProgram } from './this-node.ts';
import { UsageError } from '../output/index.ts';

type Print = Pick<Context, 'print' | 'say'>;

/** `resizectl install`. Returns the exit code. */
export async function install({ print, say }: Print, options: InstallOptions): Promise<Exit> {
  let plan: Plan = { changes: [], already: [] };
  const exit = await changing({ print, say }, options, async (signal) => {
    const site = await thisSite(options, signal);
    const findings = await diagnose(site.node);
    // A given configuration replaces an invalid one, and an installation starts what kubelet misses.
    const repaired = ['kubelet runtime', ...(site.isConfigGiven ? ['configuration'] : [])];
    const counting = findings.filter(({ check }) => !repaired.includes(check));
    if (worstOf(counting) !== 'failed') return (plan = await planInstall(site));
    print(doctorText(findings));
    throw new Refusal('a check failed, see above', 'fix the failed checks, and try again');
  });
  if (exit === Exit.done && options.dryRun !== true && plan.changes.length > 0) print(afterInstall(plan));
  return exit;
}

/** What to do next, and how to undo it. */
export function afterInstall({ versions }: Pick<Plan, 'versions'>): string {
  const [, kind, from] = /^(upgrade|downgrade) (\S+) to /.exec(versions ?? '') ?? [];
  const back = from === undefined ? '' : `run resizectl install of ${from}, or `;
  return [
    ...(kind === undefined ? [] : [`${kind} done: ${versions?.slice(kind.length + 1)}`]),
    'next: resizectl doctor checks this node; resizectl get pods lists its pods',
    `undo: ${back}resizectl uninstall removes the shim; pods keep running`,
    '',
  ].join('\n');
}

/** `resizectl uninstall`. Returns the exit code. */
export async function uninstall({ print, say }: Print, options: InstallOptions): Promise<Exit> {
  let kept: readonly string[] = [];
  const exit = await changing({ print, say }, options, async (signal) => {
    const site = await thisSite(options, signal);
    if (site.node.uid !== 0)
      throw new Refusal(`running as uid ${site.node.uid}, not as root`, 'run the command as root');
    kept = [site.configFile, site.flagsFile, site.node.stateFolder];
    return planUninstall(site);
  });
  if (exit === Exit.done) print(`kept, if present: ${kept.join(', ')}\n`);
  return exit;
}

async function thisSite({ config, kubeletUnit, timeout }: InstallOptions, signal: AbortSignal): Promise<Site> {
  const given = config === undefined ? undefined : configurationIn(config);
  if (config !== undefined && given === undefined) throw new UsageError(`--config: no such file: ${config}`);
  if (config !== undefined) await assertValid(config);
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
    flagsFile: FLAGS_FILE,
    wait: { timeoutMs: timeoutOf(timeout), signal },
  };
}

/** Throws UsageError if a configuration that is to be installed is invalid. */
async function assertValid(file: string): Promise<void> {
  try {
    await effectiveSettings(['--config', file]);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw new UsageError(`nothing was changed: invalid configuration: ${error.problems.join('; ')}`, { cause: error });
  }
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
