import { readFileSync, writeFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { type ValueSchema, configurationSchema } from './config-schema.ts';
import { configKeys, schema } from '../../src/core/config/schema.ts';

const FILE = 'deploy/helm/cri-resize-shim/values.schema.json';
interface ChartSchema {
  readonly properties: Record<string, unknown>;
}
const chart = (): ChartSchema => JSON.parse(readFileSync(FILE, 'utf8')) as ChartSchema;

test('the chart has the schema of the configuration file for its value "config"', () => {
  if (process.env['UPDATE_DOCS'] === '1') {
    const { properties, ...rest } = chart();
    const updated = { ...rest, properties: { ...properties, config: configurationSchema() } };
    writeFileSync(FILE, `${JSON.stringify(updated, undefined, 2)}\n`);
  }
  expect(chart().properties['config'], 'run the test with UPDATE_DOCS=1, and format the file').toEqual(
    JSON.parse(JSON.stringify(configurationSchema())),
  );
});

describe('schema of the configuration values', () => {
  const properties = configurationSchema()['properties'] as Readonly<Record<string, ValueSchema>>;

  /** Whether a value is valid, for the keywords that the schema uses. */
  function isValid(value: unknown, of: ValueSchema): boolean {
    const { type, pattern, minimum, maximum } = of as {
      type?: string | string[];
      pattern?: string;
      minimum?: number;
      maximum?: number;
    };
    const allowed = of['enum'] as readonly unknown[] | undefined;
    if (allowed !== undefined) return allowed.includes(value);
    const found = typeof value === 'number' ? 'integer' : typeof value;
    if (type !== undefined && ![type].flat().includes(found)) return false;
    if (typeof value === 'string') return pattern === undefined || new RegExp(pattern).test(value);
    return typeof value !== 'number' || (value >= (minimum ?? -Infinity) && value <= (maximum ?? Infinity));
  }

  const values: readonly unknown[] = [
    ...[true, false, 'true', 'nope', 'no', '', ' ', 0, 1, 30, -1, 4_194_304, 4_194_305, 600],
    ...['/', '/run/a.sock', 'unix:///run/a.sock', 'unix:/run/a.sock', 'unix://run/a.sock', 'a.sock', '/run/a/'],
    ...['tcp://127.0.0.1:1', '127.0.0.1:9467', '0.0.0.0:9467', 'localhost:1', '[::1]:1', '[::]:1', '127.0.0.1'],
    ...['0600', '600', '0680', '06000', 'rw', '30s', '1m30s', '0', '1.5h', '-1s', '30'],
    ...['info', 'inf', 'auto', 'never', 'systemd', 'cgroupfs', 'in-cluster', 'node-1.example.org', 'Node', 'a,b'],
    ...['1', '4194304', '1/root'],
  ];

  test.each(configKeys)('the schema and the shim accept the same values of %s', (key) => {
    const differing = values.filter(
      (value) => isValid(value, properties[key]!) !== schema.shape[key].safeParse(value).success,
    );
    expect(differing).toEqual([]);
  });

  test('the schema rejects keys that are not settings', () => {
    expect(configurationSchema()).toMatchObject({ additionalProperties: false });
    expect(Object.keys(properties)).toEqual(['apiVersion', 'kind', ...configKeys]);
  });
});

test("the chart's README lists every value", () => {
  const page = readFileSync('deploy/helm/cri-resize-shim/README.md', 'utf8');
  const listed = [...page.matchAll(/^\| (`[^|]*) \|/gm)].flatMap(([, names = '']) =>
    [...names.matchAll(/`(\w+)[.\w]*`/g)].map(([, name]) => name!),
  );
  const values = Object.keys(chart().properties).filter((name) => name !== 'global');
  expect([...new Set(listed)].toSorted()).toEqual(values.toSorted());
  expect(Object.keys(parse(readFileSync('deploy/helm/cri-resize-shim/values.yaml', 'utf8')) as object)).toEqual(values);
});
