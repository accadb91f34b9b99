import { expect, test } from 'vitest';
import { type Resize, ResizeTable } from '../../../src/sandbox/queue/resize-table.ts';

const ended = (id: string): Resize => ({ id, pod: { sandboxId: 'a' } }) as unknown as Resize;

test('resizes are found by their id, and by its first 8 characters or more', () => {
  const table = new ResizeTable(10);
  for (const id of ['dbdbdbdb-1111', 'dbdbdbdb-2222', 'fe']) table.end(ended(id));
  const found = (id: string): string[] => table.matching(id).map((resize) => resize.id);
  expect(found('dbdbdbdb-1')).toEqual(['dbdbdbdb-1111']);
  expect(found('dbdbdbdb')).toEqual(['dbdbdbdb-1111', 'dbdbdbdb-2222']);
  expect(['', 'd', 'db', 'dbdbdbd'].flatMap(found)).toEqual([]);
  expect(found('fe')).toEqual(['fe']);
});
