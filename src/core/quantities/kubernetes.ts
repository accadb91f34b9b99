/** Quantities as in Kubernetes (k8s.io/apimachinery, api/resource): `256Mi`, `1.5G`, `1e9`, `128974848000m`. */
import { type Bytes, bytes } from './numbers.ts';

/** The factor of a suffix: a power of 10 or of 1024. */
interface Factor {
  readonly base: bigint;
  readonly exponent: number;
}

const decimal = (exponent: number): Factor => ({ base: 10n, exponent });
const binary = (exponent: number): Factor => ({ base: 1024n, exponent });

const SUFFIXES = new Map<string, Factor>([
  ['', decimal(0)],
  ['n', decimal(-9)],
  ['u', decimal(-6)],
  ['m', decimal(-3)],
  ['k', decimal(3)],
  ['M', decimal(6)],
  ['G', decimal(9)],
  ['T', decimal(12)],
  ['P', decimal(15)],
  ['E', decimal(18)],
  ['Ki', binary(1)],
  ['Mi', binary(2)],
  ['Gi', binary(3)],
  ['Ti', binary(4)],
  ['Pi', binary(5)],
  ['Ei', binary(6)],
]);

/** Bounds the work for untrusted input. Real quantities are far shorter. */
const LONGEST_QUANTITY = 64;
const LARGEST_EXPONENT = 64;

/**
 * Reads a quantity as bytes, rounding fractions up like Kubernetes. Returns undefined for text that is not a quantity,
 * for negative values and for values above 2^53 - 1, which a number cannot represent exactly.
 */
export function parseQuantity(text: string): Bytes | undefined {
  const value = parseWhole(text, 1n);
  return value === undefined ? undefined : bytes(value);
}

/**
 * Reads a quantity of CPUs as millicores (`500m` is 500, `1.5` is 1500), rounding fractions up like Kubernetes. Returns
 * undefined like {@link parseQuantity}.
 */
export function parseMilli(text: string): number | undefined {
  return parseWhole(text, 1000n);
}

function parseWhole(text: string, times: bigint): number | undefined {
  if (text.length > LONGEST_QUANTITY) return undefined;
  const [, whole = '', fraction = '', exponent, suffix] =
    /^\+?(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d+)|([a-zA-Z]*))$/.exec(text) ?? [];
  const factor = suffix === undefined ? powerOfTen(exponent) : SUFFIXES.get(suffix);
  if (whole + fraction === '' || factor === undefined) return undefined;
  // Computes with an exact fraction of integers, without loss of precision.
  const up = factor.base ** BigInt(Math.max(factor.exponent, 0)) * times;
  const over = factor.base ** BigInt(Math.max(-factor.exponent, 0)) * 10n ** BigInt(fraction.length);
  const value = (BigInt(whole + fraction) * up + over - 1n) / over;
  return value > BigInt(Number.MAX_SAFE_INTEGER) ? undefined : Number(value);
}

function powerOfTen(digits: string | undefined): Factor | undefined {
  const exponent = Number(digits);
  return Math.abs(exponent) <= LARGEST_EXPONENT ? decimal(exponent) : undefined;
}
