import { expect, test } from 'vitest';
import { reproducible } from '../../../tools/packaging/sbom.ts';

const sbom = (serialNumber: string, timestamp: string, version = '1') => ({
  serialNumber,
  metadata: { timestamp, component: { 'bom-ref': 'shim', version } },
  components: [],
  dependencies: [],
});

test('two bills of materials with equal content are identical with SOURCE_DATE_EPOCH', () => {
  const one = reproducible(sbom('urn:uuid:1', '2026-01-01T00:00:00Z'), '1700000000');
  expect(one).toEqual(reproducible(sbom('urn:uuid:2', '2026-01-02T00:00:00Z'), '1700000000'));
  expect(one.metadata.timestamp).toBe('2023-11-14T22:13:20.000Z');
  expect(one.serialNumber).toMatch(/^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$/);
  const other = reproducible(sbom('urn:uuid:1', '2026-01-01T00:00:00Z', '2'), '1700000000');
  expect(other.serialNumber).not.toBe(one.serialNumber);
});

test('without SOURCE_DATE_EPOCH, time and serial number are those of npm', () => {
  const one = sbom('urn:uuid:1', '2026-01-01T00:00:00Z');
  expect(reproducible(one, undefined)).toEqual(one);
});
