/** Settings from flags and the configuration file, defined by one schema. */
export { parseDuration } from './values/index.ts';
export { ConfigError } from './errors.ts';
export { loadConfig } from './load.ts';
export { passThroughConfig } from './pass-through.ts';
export { type EffectiveSetting, configFileIn, effectiveSettings } from './effective.ts';
export { withSwitch } from './edit.ts';
export { type Config, type ConfigKey, defaultOf, flagOf } from './schema.ts';
export { version } from './version.ts';
export { configurationExample } from './documentation.ts';
