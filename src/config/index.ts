/** Settings from flags and the configuration file, defined by one schema. */
export { parseDuration } from './values/index.ts';
export { ConfigError } from './errors.ts';
export { type Invocation, loadConfig } from './load.ts';
export { passThroughConfig } from './pass-through.ts';
export { type EffectiveSetting, type EffectiveSettings, effectiveSettings } from './effective.ts';
export { withSwitch } from './edit.ts';
export { settingsIn } from './file.ts';
export { type Config, type ConfigKey, type LogLevel, type Settings, defaultOf } from './schema.ts';
export { version } from './version.ts';
export { configurationExample } from './documentation.ts';
