import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { configurationPage } from '../../../src/core/config/documentation.ts';

let folder: string;
beforeAll(() => (folder = mkdtempSync(join(tmpdir(), 'config-'))));
afterAll(() => rmSync(folder, { recursive: true }));

test('docs/configuration.md matches the schema', () => {
  const page = new URL('../../../docs/configuration.md', import.meta.url);
  if (process.env['UPDATE_DOCS'] === '1') writeFileSync(page, configurationPage());
  expect(readFileSync(page, 'utf8'), 'run the test with UPDATE_DOCS=1 to update it').toBe(configurationPage());
});
