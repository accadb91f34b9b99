/** Settings from flags and the configuration file, defined by one schema. */
export { configurationExample } from './documentation.ts';
export { parseDuration } from './duration.ts';
export { withSwitch } from './edit.ts';
export { ConfigError } from './errors.ts';
export { type EffectiveSetting, configFileIn, effectiveSettings, loadConfig, passThroughConfig } from './load.ts';
export { type Config, type ConfigKey, defaultOf, flagOf } from './schema.ts';
export { version } from './version.ts';
