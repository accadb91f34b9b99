import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parseMilli, parseQuantity } from '../../../src/core/quantities/kubernetes.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';

describe('a Kubernetes quantity', () => {
  test.each([
    ['0', 0],
    ['1', 1],
    ['256Mi', 268435456],
    ['1Ki', 1024],
    ['1Gi', 1073741824],
    ['2Ti', 2199023255552],
    ['1Pi', 1125899906842624],
    ['1k', 1000],
    ['1M', 1000000],
    ['1.5G', 1500000000],
    ['1T', 1000000000000],
    ['1P', 1000000000000000],
    ['0.001E', 1000000000000000],
    ['0.5Gi', 536870912],
    ['.5Ki', 512],
    ['1.Ki', 1024],
    ['+1Ki', 1024],
    ['007', 7],
    ['1e3', 1000],
    ['1E3', 1000],
    ['1e+3', 1000],
    ['1500e-3', 2],
    ['128974848000m', 128974848],
    ['1e0', 1],
    ['0.001Ei', 1152921504606847],
    ['9007199254740991', 9007199254740991],
    [`${'0'.repeat(63)}1`, 1],
  ])('the quantity %s is %i bytes', (text, size) => {
    expect(parseQuantity(text)).toBe(size);
  });

  test.each([
    ['1m', 1],
    ['1001m', 2],
    ['1u', 1],
    ['1n', 1],
    ['0.1', 1],
    ['1e-60', 1],
    ['0.0001Ki', 1],
    ['1.0000001Gi', 1073741932],
    ['0m', 0],
    ['0e64', 0],
  ])('the quantity %s is rounded up to %i whole bytes', (text, size) => {
    expect(parseQuantity(text)).toBe(size);
  });

  test.each([
    '',
    ' ',
    'Mi',
    '.',
    '.Mi',
    '-1Mi',
    '1 Mi',
    ' 1Mi',
    '1Mi\n',
    '1mi',
    '1MI',
    '1K',
    '1g',
    '1MiB',
    '1e',
    '1e1.5',
    '1e3Mi',
    '1.2.3',
    '0x10',
    '1,5Gi',
    '１Mi',
    'Infinity',
    'NaN',
    '1e65',
    '1e-65',
    '0'.repeat(65),
  ])('the quantity %j is invalid', (text) => {
    expect(parseQuantity(text)).toBeUndefined();
  });

  test.each(['8Pi', '1E', '1Ei', '9007199254740992', '1e64'])(
    'the quantity %s is invalid because it is above the safe integers',
    (text) => {
      expect(parseQuantity(text)).toBeUndefined();
    },
  );

  test('a quantity is exactly its number times its unit', () => {
    const units = { Ki: 1024, Mi: MiB, Gi: 1024 ** 3, k: 1000, M: 1e6, G: 1e9, '': 1, e3: 1000, E6: 1e6 };
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 1e6 }),
        fc.constantFrom(...Object.entries(units)),
        (count, [unit, factor]) => {
          expect(parseQuantity(`${count}${unit}`)).toBe(count * factor);
        },
      ),
    );
  });

  test('a quantity with a fraction is rounded up to the next byte', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 1e9 }), fc.integer({ min: 0, max: 999 }), (whole, thousandths) => {
        const text = `${whole}.${String(thousandths).padStart(3, '0')}`;
        expect(parseQuantity(text)).toBe(thousandths === 0 ? whole : whole + 1);
        expect(parseQuantity(`${whole * 1000 + thousandths}m`)).toBe(parseQuantity(text));
      }),
    );
  });

  test('a quantity is a safe integer or invalid, for any text', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.stringMatching(/^[0-9.]{0,8}[a-zA-Z]{0,2}[0-9+-]{0,4}$/)), (text) => {
        const size = parseQuantity(text);
        expect(size === undefined || (Number.isSafeInteger(size) && size >= 0)).toBe(true);
      }),
    );
  });
});

describe('a quantity of CPUs', () => {
  test.each([
    ['500m', 500],
    ['2', 2000],
    ['1.5', 1500],
    ['0.0001', 1],
    ['100u', 1],
    ['1k', 1_000_000],
    ['0', 0],
  ])('the CPU quantity %s is %i milli-CPUs', (text, milli) => {
    expect(parseMilli(text)).toBe(milli);
  });

  test.each(['', '-1', '1c', '500mm', '1e64'])('the CPU quantity %j is invalid', (text) => {
    expect(parseMilli(text)).toBeUndefined();
  });

  test('a CPU quantity in milli-CPUs equals its number, for any number', () => {
    fc.assert(
      fc.property(fc.nat(), (milli) => {
        expect(parseMilli(`${milli}m`)).toBe(milli);
        expect(parseMilli(String(milli))).toBe(milli * 1000);
      }),
    );
  });
});
