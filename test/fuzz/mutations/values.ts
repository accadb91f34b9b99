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

/** Changes bytes without knowing what they mean: flips bits, removes, repeats and inserts bytes, tears the end off. */
export function mutateBytes(bytes: Buffer, random: Random): Buffer {
  switch (random.below(6)) {
    case 0:
      return flipped(bytes, random);
    case 1:
      return bytes.subarray(0, random.below(bytes.length + 1));
    case 2:
      return splice(bytes, random.below(bytes.length + 1), 1 + random.below(20), Buffer.alloc(0));
    case 3:
      return splice(bytes, random.below(bytes.length + 1), 0, random.bytes(1 + random.below(40)));
    case 4: {
      const at = random.below(bytes.length + 1);
      return splice(bytes, at, 0, bytes.subarray(at, at + random.below(60)));
    }
    default:
      // A write that reached the disk partly: the rest of the block contains zeros.
      return Buffer.concat([bytes.subarray(0, random.below(bytes.length + 1)), Buffer.alloc(random.below(64))]);
  }
}

export function flipped(bytes: Buffer, random: Random): Buffer {
  if (bytes.length === 0) return bytes;
  const copy = Buffer.from(bytes);
  for (let flips = 1 + random.below(8); flips > 0; flips -= 1) copy[random.below(copy.length)]! ^= 1 << random.below(8);
  return copy;
}

export const splice = (bytes: Buffer, at: number, removed: number, added: Buffer): Buffer =>
  Buffer.concat([bytes.subarray(0, at), added, bytes.subarray(at + removed)]);

/** Changes lines and words of a file of the kernel, one to three times. The file may be torn anywhere. */
export function mutateText(text: string, random: Random): string {
  let changed = text;
  for (let count = 1 + random.below(3); count > 0; count -= 1) changed = changeOnce(changed, random);
  return changed;
}

function changeOnce(text: string, random: Random): string {
  switch (random.below(8)) {
    case 0:
      return changeLines(text, random, (lines, at) => void lines.splice(at, 1));
    case 1:
      return changeLines(text, random, (lines, at) => void lines.splice(at, 0, random.pick(lines)));
    case 2:
    case 3:
      return changeWord(text, random, () => random.pick(NUMBERS));
    case 4:
      return changeWord(text, random, () => hostileText(random));
    case 5:
      return changeWord(text, random, (word) => mutateBytes(Buffer.from(word), random).toString('latin1'));
    case 6:
      return text.slice(0, random.below(text.length + 1));
    default:
      return mutateBytes(Buffer.from(text), random).toString();
  }
}

function changeLines(text: string, random: Random, change: (lines: string[], at: number) => void): string {
  const lines = text.split('\n');
  change(lines, random.below(lines.length));
  return lines.join('\n');
}

function changeWord(text: string, random: Random, change: (word: string) => string): string {
  // Odd elements are separators.
  const parts = text.split(/([\s,:/=-])/);
  const at = 2 * random.below((parts.length + 1) >> 1);
  parts[at] = change(parts[at] ?? '');
  return parts.join('');
}

type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** Returns JSON of a value with one to three changes of its structure, sometimes torn or with changed bytes. */
export function mutateJson(value: unknown, random: Random): string {
  let changed = structuredClone(value) as Json;
  for (let count = random.below(4); count > 0; count -= 1) changed = changedWithin(changed, random, 0);
  const text = JSON.stringify(changed);
  return random.chance(4) ? mutateBytes(Buffer.from(text), random).toString('latin1') : text;
}

/** The deepest change: the stack of Node 24 ends at fewer levels than that of Node 26. */
const DEEPEST = 100;

/** Changes this value, or one inside it. */
function changedWithin(value: Json, random: Random, depth: number): Json {
  const isInside = typeof value === 'object' && value !== null && Object.keys(value).length > 0;
  if (!isInside || depth === DEEPEST || random.chance(6 + 4 * depth)) return replacement(value, random);
  const names = Object.keys(value);
  const name = random.pick(names);
  const inner = value as { [name: string]: Json };
  switch (random.below(10)) {
    case 0:
      if (Array.isArray(value)) value.splice(Number(name), 1);
      else Reflect.deleteProperty(inner, name);
      return value;
    case 1:
      if (Array.isArray(value)) value.push(structuredClone(value[Number(name)]!));
      else define(inner, hostileText(random), structuredClone(inner[name]!));
      return value;
    default:
      inner[name] = changedWithin(inner[name]!, random, depth + 1);
      return value;
  }
}

/** An assignment to `__proto__` would add no property. */
const define = (object: object, name: string, value: Json): void =>
  void Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });

function replacement(value: Json, random: Random): Json {
  switch (random.below(9)) {
    case 0:
      return null;
    case 1:
      return random.chance(2);
    case 2:
      return random.pick([0, -1, 0.5, 2 ** 31, 2 ** 53, 1e300, random.next()]);
    case 3:
      return [];
    case 4:
      return {};
    case 5:
      return [value, value];
    case 6:
      return nested(random.pick([3, 50, 500]));
    default:
      return hostileText(random);
  }
}

function nested(depth: number): Json {
  let value: Json = 1;
  for (let level = 0; level < depth; level += 1) value = [value];
  return value;
}
