/** Settings from flags and the configuration file, defined by one schema. */
export { parseDuration } from './values/index.ts';
export { ConfigError } from './errors.ts';
export { type Invocation, loadConfig } from './load.ts';
export { type Config, type ConfigKey, type LogLevel, defaultOf } from './schema.ts';
export { version } from './version.ts';
export { configurationExample } from './documentation.ts';
