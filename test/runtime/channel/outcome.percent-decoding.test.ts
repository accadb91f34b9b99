import fc from 'fast-check';
import { expect, test } from 'vitest';
import { percentDecoded } from '../../../src/runtime/channel/outcome.ts';

test.each([
  ['', ''],
  ['no pod "a/b:c"', 'no pod "a/b:c"'],
  ['100%25', '100%'],
  ['a%2Fb%3a', 'a/b:'],
  ['gr%C3%BC%C3%9Fe', 'grüße'],
  ['%', '%'],
  ['50%zz %4', '50%zz %4'],
  ['%C3%', '\ufffd%'],
  // Raw UTF-8, which the wire code reads as one character for each octet.
  ['gr\u00c3\u00bc', 'grü'],
])('percentDecoded decodes %j to %j', (text, decoded) => {
  expect(percentDecoded(text)).toBe(decoded);
});

test('percentDecoded restores any text that is encoded like in grpc-go', () => {
  const encoded = (text: string): string =>
    [...Buffer.from(text)]
      .map((octet) =>
        octet >= 0x20 && octet <= 0x7e && octet !== 0x25
          ? String.fromCharCode(octet)
          : `%${octet.toString(16).toUpperCase().padStart(2, '0')}`,
      )
      .join('');
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (text) => {
      expect(percentDecoded(encoded(text))).toBe(Buffer.from(text).toString());
    }),
  );
});
