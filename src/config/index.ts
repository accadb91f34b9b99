export type { CgroupDriver, Config, ConfigKey, LogLevel } from './schema.ts';
