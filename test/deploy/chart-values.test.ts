import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { configKeys } from '../../src/config/schema.ts';

const schema = JSON.parse(readFileSync('deploy/helm/cri-resize-shim/values.schema.json', 'utf8')) as {
  readonly properties: { readonly config: { readonly propertyNames: { readonly enum: readonly string[] } } };
};

test('the chart accepts exactly the settings of the shim in its value "config"', () => {
  expect(schema.properties.config.propertyNames.enum).toEqual(['apiVersion', 'kind', ...configKeys]);
});
