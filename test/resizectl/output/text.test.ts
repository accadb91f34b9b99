import { describe, expect, test } from 'vitest';
import {
  durationText,
  fullName,
  limitText,
  messageText,
  objectText,
  printable,
  table,
} from '../../../src/resizectl/output/text.ts';

describe('texts of resizectl', () => {
  test('a table has aligned columns, and replaces control characters in names', () => {
    expect(
      table([
        ['A', 'LONGER', 'C'],
        ['one', 'x', ''],
        ['\u001b[2Jtwo', 'y\nz', 'c'],
      ]),
    ).toBe('A         LONGER   C\none       x\n?[2Jtwo   y?z      c\n');
  });

  test('marks that reorder text are replaced in names and messages, and other letters are not', () => {
    const marks = [0x061c, 0x200e, 0x200f, 0x202a, 0x202b, 0x202c, 0x202d, 0x202e, 0x2066, 0x2067, 0x2068, 0x2069];
    for (const mark of marks) expect(printable(`a${String.fromCodePoint(mark)}b`), mark.toString(16)).toBe('a?b');
    const all = Array.from({ length: 0xd800 }, (_, code) => String.fromCodePoint(code));
    const reorders = all.filter((char) => /\p{Bidi_Control}/u.test(char));
    expect(reorders.map((char) => char.codePointAt(0))).toEqual(marks);
    expect(fullName({ namespace: 'shop', name: '\u202Ebew' })).toBe('shop/?bew');
    expect(messageText('pod \u2067web\u2069 has ended')).toBe('pod ?web? has ended');
    expect(printable('naïve עברית العربية 日本 \u{1F600}')).toBe('naïve עברית العربية 日本 \u{1F600}');
  });

  test.each([
    [
      'memory.max cannot be lowered from 268435456 to 67108864: 94371840 bytes are in use (anon 94371840, shmem 0)',
      'memory.max cannot be lowered from 256Mi to 64Mi: 90Mi are in use (anon 90Mi, shmem 0)',
    ],
    ['volume cache of pod 12345678-1234567-a cannot shrink', 'volume cache of pod 12345678-1234567-a cannot shrink'],
    ['pod cpu.max 5000000 1000000 -> 2000000 1000000', 'pod cpu.max 5000000 1000000 -> 2000000 1000000'],
    ['less than a page of memory, 4096 bytes', 'less than a page of memory, 4096 bytes'],
    ['expected less than 65011712', 'expected less than 62Mi'],
    ['\u001b[2J 1234567', '?[2J 1.2Mi'],
  ])('the message %j has units only for large amounts of bytes', (message, text) => {
    expect(messageText(message)).toBe(text);
  });

  test('limits and durations are in the largest unit that fits', () => {
    expect(['max', '256Mi', '128974848', '500m', ''].map(limitText)).toEqual(['max', '256Mi', '123Mi', '500m', '']);
    const durations = [
      [0, 123_400],
      [0, 45_600_000],
      [3, 440_000_000],
    ] as const;
    expect(durations.map(([seconds, nanos]) => durationText({ seconds, nanos }))).toEqual(['0.1 ms', '46 ms', '3.4 s']);
  });
});

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
