/** Flags and configuration file, through one schema. */
export { parseDuration } from './duration.ts';
export { ConfigError } from './errors.ts';
export { type Invocation, loadConfig } from './load.ts';
export { type Config, type ConfigKey, type LogLevel, defaultOf } from './schema.ts';
export { version } from './version.ts';
export { configurationExample } from './documentation.ts';
