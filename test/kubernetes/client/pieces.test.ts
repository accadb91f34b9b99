import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { type Piece, readItems, readLines } from '../../../src/kubernetes/client/pieces.ts';

/** A body that arrives in chunks of this size. */
function body(text: string, size: number): Readable {
  const bytes = Buffer.from(text);
  const chunks: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += size) chunks.push(bytes.subarray(at, at + size));
  return Readable.from(chunks);
}

async function all(pieces: AsyncIterable<Piece>): Promise<Piece[]> {
  const found: Piece[] = [];
  for await (const piece of pieces) found.push(piece);
  return found;
}

async function itemsOf(text: string, size: number, longest = 1000): Promise<{ items: Piece[]; frame: unknown }> {
  const items: Piece[] = [];
  const frame = await readItems(body(text, size), longest, (item) => void items.push(item));
  return { items, frame: JSON.parse(frame) };
}

const SIZES = [1, 2, 3, 7, 10_000];

describe('lines of a body', () => {
  test.each(SIZES)('lines of a body are read whole from chunks of %i bytes, without empty lines', async (size) => {
    const lines = await all(readLines(body('one\n\nzwölf\nthree\nunfinished', size), 100));
    expect(lines.map(({ text }) => text)).toEqual(['one', 'zwölf', 'three']);
    expect(lines.some(({ isTooLong }) => isTooLong)).toBe(false);
  });

  test.each(SIZES)(
    'a line beyond the limit is cut, and the next line is whole, from chunks of %i bytes',
    async (size) => {
      const lines = await all(readLines(body(`one\n${'x'.repeat(6000)}\ntwo\n`, size), 5000));
      expect(lines).toEqual([
        { text: 'one', isTooLong: false },
        { text: 'x'.repeat(4096), isTooLong: true },
        { text: 'two', isTooLong: false },
      ]);
    },
  );
});

describe('items of a list', () => {
  const items = [
    { a: 'quotes " and \\', b: [{ c: ['}', ']', ','] }] },
    {},
    { text: 'zwölf', nested: { list: [1, [2, { three: 3 }]] } },
  ];
  const metadata = { resourceVersion: '7', managed: { deep: [{ x: 1 }] } };

  test.each(SIZES)('the items of a list are split from the rest, from chunks of %i bytes', async (size) => {
    for (const list of [
      { kind: 'PodList', metadata, items },
      { items, metadata },
    ]) {
      for (const text of [JSON.stringify(list), JSON.stringify(list, undefined, 2)]) {
        const found = await itemsOf(text, size);
        expect(found.items.map((item) => JSON.parse(item.text) as unknown)).toEqual(items);
        expect(found.frame).toEqual({ ...list, items: [] });
      }
    }
  });

  test('an item beyond the limit is cut, and the next item is whole', async () => {
    const list = { items: [{ a: 1 }, { a: 'x'.repeat(6000) }, { a: 3 }], metadata };
    const found = await itemsOf(JSON.stringify(list), 100, 5000);
    expect(found.items.map(({ isTooLong }) => isTooLong)).toEqual([false, true, false]);
    expect(found.items[2]?.text).toBe('{"a":3}');
  });

  test.each(['{"items":null}', '{"items":[]}', '{}'])('the items of a list may be missing: %s', async (text) => {
    expect(await itemsOf(text, 3)).toEqual({ items: [], frame: JSON.parse(text) as unknown });
  });

  test('rejects a list that exceeds its limit without its items', async () => {
    const list = { metadata: { name: 'x'.repeat(70_000) }, items: [] };
    await expect(itemsOf(JSON.stringify(list), 1000)).rejects.toThrow('the list without its items is longer than');
  });
});
