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
  const flags = { ...commandLine.settings, intercept: false };
  // Sockets of the file that contradict each other are not used either.
  for (const settings of [safeSettings(error.usable), {}]) {
    try {
      const file = { settings: { ...backend, ...settings }, lineOf: () => undefined };
      return configOf({ configFile: '', file, flags });
    } catch (cause) {
      if (!(cause instanceof ConfigError)) throw cause;
    }
  }
  throw error;
}

/** Leaves out metrics that would be served without the token that the file may ask for. */
function safeSettings(usable: UsableSettings | undefined): Settings {
  if (usable === undefined) return {};
  const { settings, hasUnknownKeys } = usable;
  if (settings.metricsTokenFile !== undefined) return settings;
  return hasUnknownKeys || usable.isTokenInvalid ? { ...settings, metricsBind: '' } : settings;
}
