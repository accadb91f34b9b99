import { join } from 'node:path';
import { expect, test } from 'vitest';

const root = join(import.meta.dirname, '../..');
const config = (await import(join(root, 'stryker.config.js'))) as { readonly default: { readonly mutate: string[] } };

// A file that throws while it is loaded leaves the tests that import it without a test that could fail: to Stryker such a mutant lives.
test.each(config.default.mutate)('%s can be loaded', async (file) => {
  await expect(import(join(root, file))).resolves.toBeDefined();
});
