import { durationPattern } from '../../src/core/config/duration.ts';
import {
  apiVersion,
  type ConfigKey,
  cgroupDrivers,
  configKeys,
  kind,
  logLevels,
  settingOf,
  volumesFollow,
} from '../../src/core/config/schema.ts';
import { modePattern, nodeNamePattern } from '../../src/core/config/values.ts';

/** A JSON schema (draft 7) of one value. */
export type ValueSchema = Readonly<Record<string, unknown>>;

const address = '^((unix://)?/.*[^/]|unix:/([^/].*)?[^/])$';
const path = '^/';
const orEmpty = (pattern: string): string => `^$|${pattern}`;
const text = (pattern: RegExp | string): ValueSchema => ({
  type: 'string',
  pattern: typeof pattern === 'string' ? pattern : pattern.source,
});

/**
 * The values of settings that are neither a switch nor a path. The patterns use only what both Go, the language of
 * Helm, and JavaScript have.
 */
const values: Readonly<Partial<Record<ConfigKey, ValueSchema>>> = {
  listen: text(address),
  containerRuntimeEndpoint: text(address),
  resizeListen: text(orEmpty(address)),
  metricsBind: text(orEmpty(`${address}|^(localhost|127(\\.[0-9]{1,3}){3}|\\[::1\\]):[0-9]{1,5}$`)),
  mountsOfPid: { type: ['string', 'integer'], pattern: '^([1-9][0-9]{0,6})?$', minimum: 1, maximum: 2 ** 22 },
  metricsTokenFile: text(orEmpty(path)),
  kubeconfig: text(orEmpty(`${path}|^in-cluster$`)),
  nodeName: text(orEmpty(nodeNamePattern.source)),
  resizeSocketMode: text(modePattern),
  cgroupDriver: { enum: cgroupDrivers },
  volumesFollow: { enum: volumesFollow },
  logLevel: { enum: logLevels },
  reclaimTimeout: text(`^0$|${durationPattern.source}`),
  shutdownTimeout: text(`^0$|${durationPattern.source}`),
};

/** Returns the configuration file's JSON schema for the Helm values. A test compares it with the chart. */
export function configurationSchema(): ValueSchema {
  const settings = configKeys.map((key) => {
    const { isBoolean, description } = settingOf(key);
    return [key, { description, ...(isBoolean ? { type: 'boolean' } : (values[key] ?? text(path))) }];
  });
  return {
    type: 'object',
    additionalProperties: false,
    properties: { apiVersion: { enum: [apiVersion] }, kind: { enum: [kind] }, ...Object.fromEntries(settings) },
  };
}
