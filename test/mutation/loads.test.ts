import { join } from 'node:path';
import { expect, test } from 'vitest';

const root = join(import.meta.dirname, '../..');
const config = (await import(join(root, 'stryker.config.js'))) as { readonly default: { readonly mutate: string[] } };

// If a file throws at import, the tests that import it do not run, and Stryker counts the mutant as survived.
test.each(config.default.mutate)('%s can be loaded', async (file) => {
  await expect(import(join(root, file))).resolves.toBeDefined();
});
