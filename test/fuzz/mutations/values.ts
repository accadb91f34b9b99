import type { Random } from '../random.ts';

/** Values at which parsers failed: integer and quantity limits, names of inherited properties, non-UTF-8 text. */

export const INTEGERS: readonly bigint[] = [
  0n,
  1n,
  -1n,
  2n,
  4095n,
  4096n,
  100_000n,
  262_144n,
  262_145n,
  2n ** 31n - 1n,
  -(2n ** 31n),
  2n ** 32n,
  2n ** 53n - 1n,
  2n ** 53n,
  2n ** 63n - 1n,
  -(2n ** 63n),
  0x7fff_ffff_ffff_f000n,
];

export const NUMBERS: readonly string[] = [
  ...INTEGERS.map(String),
  'max',
  '18446744073709551615',
  '18446744073709551616',
  '99999999999999999999999999999999999999999',
  '1e400',
  '0.1',
  '1.',
  '.5',
  '1e9',
  '1E+64',
  '1Ei',
  '9007199254740993m',
  '128Mi',
  '500m',
  '50%',
  '12.345%/web',
  '0x10',
  '-0',
  '+1',
  'NaN',
  'Infinity',
  '',
];

const NAMES: readonly string[] = [
  '__proto__',
  'constructor',
  'toString',
  'hasOwnProperty',
  '..',
  '../../etc/passwd',
  '/',
  '.',
  '',
  ' ',
  'a/b',
  'a\0b',
  'a\nb',
  '\ufeff',
  '\ud800',
  '\\134',
  'ü'.repeat(40),
  'x'.repeat(300),
];

/** Returns a name or a number that is unlikely to be expected. */
export function hostileText(random: Random): string {
  const kind = random.below(6);
  if (kind < 3) return random.pick(NAMES);
  if (kind < 5) return random.pick(NUMBERS);
  return random.bytes(random.below(30)).toString('latin1');
}
