import { existsSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { ConfigError, configFileIn, configurationExample, effectiveSettings, flagOf } from '../../config/index.ts';
import { errnoOf, messageOf } from '../../core/errors/index.ts';
import { PROVIDED_KUBECONFIG, Refusal, type Site, plannedFlags, serviceFlags } from '../../install/node/index.ts';
import { bypassTarget } from '../../systemd/index.ts';
import { timeoutOf } from './changing.ts';
import type { InstallOptions } from './context.ts';
import { CONFIG_FILE, FLAGS_FILE, serviceSettings, thisNode, thisProgram } from './this-node.ts';
import { UsageError } from '../output/index.ts';

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
  bypassFile: '/var/lib/cri-resize-shim-bypass/target',
};

/** Returns the site of an installation. Throws UsageError, and Refusal if a given configuration would not be what the service uses. */
export async function siteToInstall(options: InstallOptions, signal: AbortSignal, places = PLACES): Promise<Site> {
  const { config, kubeconfig } = options;
  const given = fileOf('--config', config);
  const credentials = fileOf('--kubeconfig', kubeconfig);
  const settings = config === undefined ? await presentSettings(places) : await givenSettings(config, places);
  return siteOf(settings, options, { signal, given, credentials });
}

/** Returns the settings of the service, or what is valid of them: a check reports the rest. */
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
 * Returns the site of a removal. A configuration that is invalid, or cannot be read, does not keep the shim on the
 * node: what can be read of it applies, then what the shim has used last, then the defaults. Throws UsageError for
 * invalid options.
 * @param say receives a line then
 */
export async function siteToRemove(
  options: InstallOptions,
  { signal, say }: { readonly signal: AbortSignal; readonly say: (line: string) => void },
  places = PLACES,
): Promise<Site> {
  const site = (settings: ReadSettings): Site => siteOf(settings, options, { signal });
  try {
    return site(await serviceSettings(await plannedFlags(places)));
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

interface SiteParts {
  readonly signal: AbortSignal;
  /** Text of a given configuration. */
  readonly given?: string | undefined;
  /** Text of a given kubeconfig. */
  readonly credentials?: string | undefined;
}

function siteOf(
  settings: ReadSettings,
  { kubeletUnit, timeout }: InstallOptions,
  { signal, given, credentials }: SiteParts,
): Site {
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
    kubeconfig: {
      path: PROVIDED_KUBECONFIG,
      isUsed: settings.kubeconfig === PROVIDED_KUBECONFIG,
      ...(credentials !== undefined && { text: credentials }),
    },
    wait: { timeoutMs: timeoutOf(timeout), signal },
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
