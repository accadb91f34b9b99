import { mkdtemp, readFile, readdir, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { obtain, present } from '../../../tools/download/cache.ts';
import { silent } from '../../../tools/download/progress.ts';

let cache: string;
let made: number;
beforeEach(async () => {
  cache = await mkdtemp(join(tmpdir(), 'cache-test-'));
  made = 0;
});
afterEach(() => rm(cache, { recursive: true }));

const recipe = {
  name: 'part',
  key: 'one',
  async make(folder: string): Promise<Record<string, string>> {
    made += 1;
    await writeFile(join(folder, 'program'), 'content');
    return { program: '1.0' };
  },
};

test('a part is made once for two concurrent requests', async () => {
  const [first, second] = await Promise.all([obtain(cache, recipe, silent), obtain(cache, recipe, silent)]);
  expect(second).toEqual(first);
  expect(made).toBe(1);
  expect(await present(cache, recipe)).toEqual({ folder: first.folder, versions: { program: '1.0' } });
  expect(await readFile(join(first.folder, 'program'), 'utf8')).toBe('content');
});

test('an incomplete part is made again', async () => {
  const { folder } = await obtain(cache, recipe, silent);
  await truncate(join(folder, 'program'), 3);
  expect(await present(cache, recipe)).toBeUndefined();
  await obtain(cache, recipe, silent);
  expect(made).toBe(2);
});

test('a part that cannot be made leaves nothing in the cache', async () => {
  const broken = {
    ...recipe,
    async make(folder: string): Promise<Record<string, string>> {
      await recipe.make(folder);
      throw new Error('cut off');
    },
  };
  await expect(obtain(cache, broken, silent)).rejects.toThrow('cut off');
  expect(await readdir(cache)).toEqual(['part.lock']);
});
