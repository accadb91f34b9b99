import { ConfigError, type UsableSettings } from './errors.ts';
import { readFlags } from './flags.ts';
import { configOf } from './load.ts';
import type { Config, Settings } from './schema.ts';
import { version } from './version.ts';

/**
 * Returns the configuration with which the shim forwards every call although its file is invalid: the settings of the
 * file that have no problem, and `intercept: false`. Throws the error if even that is not possible.
 * @param error of {@link loadConfig}
 * @param lastBackend socket of containerd that the shim has used last: it applies if the file has no usable one
 */
export function passThroughConfig(argv: readonly string[], error: ConfigError, lastBackend?: string): Config {
  const commandLine = readFlags(argv, version);
  if (error.source !== 'file' || commandLine.ask !== 'run') throw error;
  const backend = lastBackend === undefined ? {} : { containerRuntimeEndpoint: lastBackend };
  const own = { ...commandLine.settings, intercept: false };
  // Sockets of the file that contradict each other are not used either.
  for (const usable of [error.usable, undefined]) {
    const written = { ...backend, ...usable?.settings };
    const flags = isTokenKnown(usable, own) ? own : { ...own, metricsBind: '' };
    try {
      return configOf({ configFile: '', file: { settings: written, lineOf: () => undefined }, flags });
    } catch (cause) {
      if (!(cause instanceof ConfigError)) throw cause;
    }
  }
  throw error;
}

/** Whether it is known that metrics need no token, or which one: the file may ask for it in a part that cannot be read. */
function isTokenKnown(usable: UsableSettings | undefined, flags: Settings): boolean {
  if (flags.metricsTokenFile !== undefined) return true;
  if (usable === undefined) return false;
  if (usable.settings.metricsTokenFile !== undefined) return true;
  return !usable.hasUnknownKeys && !usable.isTokenInvalid;
}
