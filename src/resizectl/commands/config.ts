import { ConfigError, type EffectiveSetting, Exit, effectiveSettings } from '../../core/index.ts';
import { type Node, plannedFlags } from '../../install/index.ts';
import { objectText, printable, table } from '../output/text.ts';
import type { Context } from './context.ts';
import { CONFIG_FILE, FLAGS_FILE } from './this-node.ts';

type Output = Pick<Context, 'output' | 'print' | 'printError'>;

type Places = Pick<Node, 'flagsFile' | 'configFile'>;

const PLACES: Places = { flagsFile: FLAGS_FILE, configFile: CONFIG_FILE };

/** Returns the service's flags, the flags that an installation would write, or flags that name the given file. */
const flagsOf = async (file: string | undefined, places: Places): Promise<readonly string[]> =>
  file === undefined ? plannedFlags(places) : ['--config', file];

/** `resizectl config check`. Returns the exit code. */
export async function checkConfig(
  { output, print }: Output,
  file: string | undefined,
  places: Places = PLACES,
): Promise<Exit> {
  const { configFile, problems } = await checked(await flagsOf(file, places));
  const name = file ?? configFile;
  if (output === 'json' || output === 'yaml')
    print(objectText({ file: name ?? '', valid: problems.length === 0, problems }, output));
  else if (problems.length === 0)
    print(
      name === undefined ? 'no configuration file: the defaults and the flags apply\n' : `${printable(name)}: valid\n`,
    );
  else print(problems.map((line) => `${printable(line)}\n`).join(''));
  return problems.length === 0 ? Exit.done : Exit.failed;
}

async function checked(
  flags: readonly string[],
): Promise<{ readonly configFile?: string | undefined; readonly problems: readonly string[] }> {
  try {
    return { configFile: (await effectiveSettings(flags)).configFile, problems: [] };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return { problems: error.source === 'usage' ? error.problems.map(ofFlags) : error.problems };
  }
}

const ofFlags = (problem: string): string => `${FLAGS_FILE}: CRI_RESIZE_SHIM_FLAGS: ${problem}`;

/** `resizectl config show`. Returns the exit code. */
export async function showConfig(
  { output, print, printError }: Output,
  file: string | undefined,
  places: Places = PLACES,
): Promise<Exit> {
  const flags = await flagsOf(file, places);
  const { problems } = await checked(flags);
  if (problems.length > 0) {
    printError(new Error(problems.join('\n')));
    return Exit.failed;
  }
  const { configFile, settings } = await effectiveSettings(flags);
  if (output === 'json' || output === 'yaml')
    print(objectText({ settings: settings.map((setting) => jsonOf(setting, configFile)) }, output));
  else {
    const rows = settings.map((setting) => [setting.key, valueText(setting.value), sourceOf(setting, configFile)]);
    print(table([['KEY', 'VALUE', 'FROM'], ...rows]));
  }
  return Exit.done;
}

const valueText = (value: EffectiveSetting['value']): string => (value === '' ? '""' : String(value));

function sourceOf({ from, line }: EffectiveSetting, configFile: string | undefined): string {
  switch (from) {
    case 'default':
      return 'default';
    case 'file':
      return `${configFile ?? ''}${line === undefined ? '' : `:${line}`}`;
    case 'flag':
      return `flag in ${FLAGS_FILE}`;
  }
}

function jsonOf(setting: EffectiveSetting, configFile: string | undefined): object {
  const { key, value, from, line } = setting;
  const file = { default: undefined, file: configFile, flag: FLAGS_FILE }[from];
  return { key, value, from, ...(file !== undefined && { file }), ...(line !== undefined && { line }) };
}
