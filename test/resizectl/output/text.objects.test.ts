import { expect, test } from 'vitest';
import { objectText } from '../../../src/resizectl/output/text.ts';

const span = { seconds: 0, nanos: 1_200_000 };

test('objects for programs have the names of the .proto file, and times as in protobuf’s JSON', () => {
  const object = {
    time: { seconds: 1_700_000_000, nanos: 123_456_000 },
    step: { took: span, text: 'x' },
    list: [{ size_bytes: 5 }],
  };
  expect(JSON.parse(objectText(object, 'json'))).toEqual({
    time: '2023-11-14T22:13:20.123Z',
    step: { took: '0.0012s', text: 'x' },
    list: [{ size_bytes: 5 }],
  });
  expect(objectText(object, 'json', true).split('\n')).toHaveLength(2);
  expect(objectText({ a: [1] }, 'yaml', true)).toBe('---\na:\n  - 1\n');
});
