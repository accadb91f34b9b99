import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import {
  bypassTarget,
  ConfigError,
  configFileIn,
  configurationExample,
  Exit,
  effectiveSettings,
  errnoOf,
  flagOf,
  messageOf,
  parseDuration,
} from '../../core/index.ts';
import {
  applyChanges,
  type ChangesResult,
  diagnose,
  type Finding,
  kubeletAfterInstall,
  type Plan,
  PROVIDED_KUBECONFIG,
  planInstall,
  plannedFlags,
  planSwitch,
  planUninstall,
  probeChanges,
  Refusal,
  type Site,
  serviceFlags,
  takeInstallLock,
  USUAL_UNIT,
  worstOf,
} from '../../install/index.ts';
import { BusyError, UsageError } from '../output/failure.ts';
import { sayingWaits } from '../waiting.ts';
import type { Context, InstallOptions } from './context.ts';
import { doctorText } from './doctor.ts';
import {
  BYPASS_FILE,
  CONFIG_FILE,
  configuredNode,
  FLAGS_FILE,
  foundNode,
  serviceSettings,
  thisNode,
  thisProgram,
} from './this-node.ts';

type Print = Pick<Context, 'print' | 'say'>;

/** `resizectl install`. Returns the exit code. */
export async function install({ print, say }: Print, options: InstallOptions): Promise<Exit> {
  let plan: Plan = { changes: [], already: [] };
  let kubelet = (): Promise<string | undefined> => Promise.resolve(undefined);
  const exit = await changing({ print, say }, options, async (signal) => {
    const site = await siteToInstall(options, signal);
    const findings = await diagnose(site.node);
    kubelet = async () => kubeletAfterInstall(site.node, findings);
    if (worstOf(unrepaired(findings, site)) !== 'failed') return (plan = await planInstall(site));
    print(doctorText(findings));
    throw new Refusal('a check failed, see above', 'fix the failed checks, and try again');
  });
  if (exit !== Exit.done || options.dryRun === true) return exit;
  const line = await kubelet();
  if (line !== undefined) print(`${line}\n`);
  if (plan.changes.length > 0) print(afterInstall(plan));
  return exit;
}

/**
 * Returns the findings that an installation does not repair. It repairs the bypass, whose clients move to the shim; a
 * missing runtime, together with a kubelet that ends after each start without it; and the configuration if a new one is
 * given. A kubelet that uses the shim and ends after each start may be repaired by another version or configuration;
 * planInstall refuses what it cannot read.
 */
export function unrepaired(findings: readonly Finding[], { isConfigGiven }: Pick<Site, 'isConfigGiven'>): Finding[] {
  const lacksRuntime = findings.some(({ check, result }) => check === 'kubelet runtime' && result === 'failed');
  const repaired = [
    'bypass',
    ...(lacksRuntime ? ['kubelet runtime', 'kubelet'] : []),
    ...(isConfigGiven ? ['configuration'] : []),
  ];
  return findings.filter(({ check, isLoopAtShim }) => !repaired.includes(check) && isLoopAtShim !== true);
}

/** The next steps, and how to undo the installation. */
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
    const site = await siteToRemove(options, { signal, say });
    if (site.node.uid !== 0)
      throw new Refusal(`running as uid ${site.node.uid}, not as root`, 'run the command as root');
    kept = [site.configFile, site.flagsFile, site.node.stateFolder];
    return planUninstall(site);
  });
  if (exit === Exit.done) print(`kept, if present: ${kept.join(', ')}\n`);
  return exit;
}

const ON = 'on: the shim acts on resizes';
const OFF = 'off: the shim forwards every call unchanged, until: resizectl on (also after a reboot)';

/** `resizectl on` and `resizectl off`. Returns the exit code. */
export async function switchTo(
  isOn: boolean,
  { print, say }: Pick<Context, 'print' | 'say'>,
  options: InstallOptions,
): Promise<Exit> {
  const exit = await changing({ print, say }, options, async (signal) => {
    const node = await configuredNode({});
    if (node.uid !== 0) throw new Refusal(`running as uid ${node.uid}, not as root`, 'run the command as root');
    return planSwitch(node, { isOn, wait: { timeoutMs: timeoutOf(options.timeout), signal } });
  });
  if (exit === Exit.done && options.dryRun !== true) print(`${isOn ? ON : OFF}\n`);
  return exit;
}

const exits: Readonly<Record<ChangesResult, Exit>> = {
  done: Exit.done,
  undone: Exit.infeasible,
  overtaken: Exit.busy,
  'undo failed': Exit.undoFailed,
};

const DEFAULT_TIMEOUT_MS = 60_000;
/** k3s and RKE2 start the control plane and containerd with kubelet. */
const LARGE_UNIT_TIMEOUT_MS = 300_000;

/** Returns the value of --timeout in milliseconds. Throws UsageError. */
export function timeoutOf(timeout: string | undefined, unit = USUAL_UNIT): number {
  const usual = unit === USUAL_UNIT ? DEFAULT_TIMEOUT_MS : LARGE_UNIT_TIMEOUT_MS;
  const timeoutMs = timeout === undefined ? usual : parseDuration(timeout);
  if (timeoutMs !== undefined && timeoutMs > 0) return timeoutMs;
  throw new UsageError(`--timeout: invalid duration ${JSON.stringify(timeout)}: expected a duration such as 30s or 2m`);
}

/**
 * Takes the lock of the installation. Returns its release. Throws BusyError. Only root can change anything, which a
 * plan or a check says.
 */
export async function locked(isDryRun: boolean, take = takeInstallLock): Promise<() => Promise<void>> {
  if (isDryRun || process.geteuid?.() !== 0) return () => Promise.resolve();
  const lock = await take();
  if (lock.kind === 'held') return () => lock.release();
  const pid = lock.pid === undefined ? '' : ` (pid ${lock.pid})`;
  throw new BusyError(
    `nothing was changed: another installation runs${pid}; what to do: wait until it has ended, and try again`,
  );
}

/**
 * Makes the changes of a plan while no other process does, or prints them. An interrupt rolls them back. Returns the
 * exit code.
 * @param planOf throws Refusal; its signal aborts on an interrupt
 */
export async function changing(
  { print, say }: Pick<Context, 'print' | 'say'>,
  { dryRun }: Pick<InstallOptions, 'dryRun'>,
  planOf: (signal: AbortSignal) => Promise<Plan>,
): Promise<Exit> {
  const ending = new AbortController();
  const end = (signal: NodeJS.Signals): void => ending.abort(new Error(`interrupted by ${signal}`));
  // A closed pipe (`| head`) must not end the process half way.
  process.stdout.removeAllListeners('error').on('error', () => undefined);
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  for (const signal of signals) process.on(signal, end);
  let unlock: (() => Promise<void>) | undefined;
  try {
    unlock = await locked(dryRun === true);
    const printLine = (line: string): void => print(`${line}\n`);
    const { changes, already, versions } = await sayingWaits('the state of this node', planOf(ending.signal), say);
    if (versions !== undefined) printLine(`${dryRun === true ? 'would ' : ''}${versions}`);
    for (const line of already) printLine(`already: ${line}`);
    if (dryRun === true) {
      for (const { description } of changes) printLine(`would: ${description}`);
    }
    const problems = await probeChanges(changes);
    if (problems.length > 0)
      throw new UsageError(`nothing was changed, because this is not possible: ${problems.join('; ')}`);
    if (dryRun === true) return Exit.done;
    return exits[await applyChanges(changes, printLine, ending.signal)];
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    throw new UsageError(`nothing was changed: ${error.message}; what to do: ${error.remedy}`, { cause: error });
  } finally {
    await unlock?.();
    for (const signal of signals) process.off(signal, end);
  }
}

/** Files of a node that describe the service. */
export interface Places {
  readonly configFile: string;
  readonly flagsFile: string;
  /** The file with the target of the bypass. */
  readonly bypassFile: string;
}

const PLACES: Places = {
  configFile: CONFIG_FILE,
  flagsFile: FLAGS_FILE,
  bypassFile: BYPASS_FILE,
};

/** Returns an installation's site. Throws UsageError, or Refusal if the service would not use a given config. */
export async function siteToInstall(options: InstallOptions, signal: AbortSignal, places = PLACES): Promise<Site> {
  const { config, kubeconfig } = options;
  const given = fileOf('--config', config);
  const credentials = fileOf('--kubeconfig', kubeconfig);
  const settings = config === undefined ? await presentSettings(places) : await givenSettings(config, places);
  return siteOf(settings, options, { signal, given, credentials });
}

/** Returns the settings of the service, or the valid part of them: a check reports the problems. */
async function presentSettings(places: Places): Promise<ReadSettings> {
  try {
    return await serviceSettings(await plannedFlags(places));
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return usableOf(error);
  }
}

/**
 * Returns the settings of the service with a given configuration file. Throws Refusal if the flags of the service have
 * precedence over it.
 */
async function givenSettings(file: string, { configFile, flagsFile }: Places): Promise<ReadSettings> {
  try {
    const given = (await effectiveSettings(['--config', file])).settings.filter(({ from }) => from === 'file');
    if (!existsSync(flagsFile)) return await serviceSettings(['--config', file]);
    const flags = await serviceFlags(flagsFile);
    refuseOtherFile(configFileIn(flags), { configFile, flagsFile });
    const { settings } = await effectiveSettings([...flags, '--config', file]);
    const others = settings.filter(({ from }) => from === 'flag');
    const overridden = given.filter(({ key, value }) =>
      others.some((other) => other.key === key && other.value !== value),
    );
    if (overridden.length > 0)
      throw new Refusal(
        `${flagsFile} has ${overridden.map(({ key }) => flagOf(key)).join(' and ')}, which takes precedence over the given configuration`,
        `remove it from CRI_RESIZE_SHIM_FLAGS, or ${overridden.map(({ key }) => key).join(' and ')} from the configuration, and try again`,
      );
    return await serviceSettings([...flags, '--config', file]);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const problems = error.problems.join('; ');
    if (error.source === 'usage') throw new Refusal(`${flagsFile}: ${problems}`, 'correct the flags, and try again');
    throw new UsageError(`nothing was changed: invalid configuration: ${problems}`, { cause: error });
  }
}

/** Throws Refusal if the service would not read the file that an installation writes. */
function refuseOtherFile(
  used: string | undefined,
  { configFile, flagsFile }: Pick<Places, 'configFile' | 'flagsFile'>,
): void {
  if (used === undefined)
    throw new Refusal(
      `the service has no configuration file: ${flagsFile} has no --config`,
      `add --config ${configFile} to CRI_RESIZE_SHIM_FLAGS in ${flagsFile}, and try again`,
    );
  if (resolve(used) === resolve(configFile)) return;
  throw new Refusal(
    `the service reads ${used} (--config in ${flagsFile}), not ${configFile}, which the installation would write`,
    `set --config ${configFile} there, or change ${used} and restart cri-resize-shim.service`,
  );
}

/**
 * Returns the site of a removal. An invalid or unreadable configuration does not prevent a removal: its valid part
 * applies, then the values that the shim used last, then the defaults. Throws UsageError for invalid options.
 * @param say receives a line if the configuration is invalid
 */
export async function siteToRemove(
  options: InstallOptions,
  { signal, say }: { readonly signal: AbortSignal; readonly say: (line: string) => void },
  places = PLACES,
): Promise<Site> {
  const site = (settings: ReadSettings): Promise<Site> => siteOf(settings, options, { signal });
  try {
    return await site(await serviceSettings(await plannedFlags(places)));
  } catch (error) {
    const target = await bypassTarget(places.bypassFile);
    const settings = {
      ...(target !== undefined && { containerRuntimeEndpoint: target }),
      ...(error instanceof ConfigError && usableOf(error)),
    };
    say(`the configuration is ignored where it is invalid: ${messageOf(error).replaceAll('\n', '; ')}`);
    return site(settings);
  }
}

interface SiteOptions {
  readonly signal: AbortSignal;
  /** Text of a given configuration. */
  readonly given?: string | undefined;
  /** Content of the kubeconfig that `--kubeconfig` names. */
  readonly credentials?: string | undefined;
}

async function siteOf(
  settings: ReadSettings,
  { kubeletUnit, timeout }: InstallOptions,
  { signal, given, credentials }: SiteOptions,
): Promise<Site> {
  const node = await foundNode({ ...settings, ...(kubeletUnit !== undefined && { kubeletUnit }) });
  const to = join(node.programFolder, 'cri-resize-shim');
  const isRuntimeFound = settings.containerRuntimeEndpoint === undefined && node.containerd !== thisNode({}).containerd;
  return {
    node,
    program: thisProgram(to),
    to,
    commandFile: join(dirname(node.programFolder), 'bin/resizectl'),
    unitFolder: '/etc/systemd/system',
    configFile: CONFIG_FILE,
    configText: given ?? configurationExample({ isCommentedOut: true }),
    isConfigGiven: given !== undefined,
    flagsFile: FLAGS_FILE,
    runtimeFlags: isRuntimeFound ? [flagOf('containerRuntimeEndpoint'), `unix://${node.containerd}`] : [],
    kubeconfig: {
      path: PROVIDED_KUBECONFIG,
      isUsed: settings.kubeconfig === PROVIDED_KUBECONFIG,
      ...(credentials !== undefined && { text: credentials }),
    },
    wait: { timeoutMs: timeoutOf(timeout, node.kubeletUnit), signal },
  };
}

/** Reads the file that a flag names; returns undefined without the flag. Throws UsageError. */
function fileOf(flag: string, file: string | undefined): string | undefined {
  if (file === undefined) return undefined;
  const text = configurationIn(file);
  if (text === undefined) throw new UsageError(`${flag}: no such file: ${file}`);
  return text;
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

const READ = ['listen', 'containerRuntimeEndpoint', 'stateFolder', 'kubeconfig'] as const;
type ReadSettings = { readonly [Key in (typeof READ)[number]]?: string };

/** Returns the settings without a problem in an invalid file. */
const usableOf = ({ usable }: ConfigError): ReadSettings =>
  Object.fromEntries(
    READ.flatMap((key) => {
      const value = usable?.settings[key];
      return typeof value === 'string' ? [[key, value]] : [];
    }),
  );
