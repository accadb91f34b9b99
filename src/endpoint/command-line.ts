/** The flags of kubelet that decide its runtime endpoint; undefined: not given. */
export interface EndpointFlags {
  readonly endpoint: string | undefined;
  readonly config: string | undefined;
  readonly configDir: string | undefined;
}

/** The flag that sets the endpoint. It overrides every file. */
export const ENDPOINT_FLAG = '--container-runtime-endpoint';

/** Reads the flags from the words of kubelet's command line. An empty value counts as not given: kubelet does not start with it. */
export function endpointFlagsOf(commandLine: readonly string[]): EndpointFlags {
  const given = (flag: string): string | undefined => {
    const value = flagOf(commandLine, flag);
    return value === '' ? undefined : value;
  };
  return { endpoint: given(ENDPOINT_FLAG), config: given('--config'), configDir: given('--config-dir') };
}

/**
 * Returns the value of a flag, given as `--flag value` or `--flag=value`; undefined if it is missing. As in kubelet, the last one wins,
 * `_` and `-` are the same (WordSepNormalizeFunc in k8s.io/component-base/cli/flag), and `--` ends the flags (pflag, parseArgs).
 */
export function flagOf(commandLine: readonly string[], flag: string): string | undefined {
  let found: string | undefined;
  for (const [index, word] of commandLine.entries()) {
    if (word === '--') break;
    if (!word.startsWith('--')) continue;
    const [, name = '', value] = /^([^=]*)(?:=(.*))?$/s.exec(word) ?? [];
    if (name.replaceAll('_', '-') === flag) found = value ?? commandLine[index + 1];
  }
  return found;
}
