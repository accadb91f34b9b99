import { type Bytes, bytes } from '../../../src/core/quantities/numbers.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';

/** Returns mebibytes as bytes. */
export const mi = (count: number): Bytes => bytes(count * MiB);

/** Returns mebibytes as a field of a CRI message. */
export const criMi = (count: number): bigint => BigInt(count * MiB);

/** Returns mebibytes as the content of a cgroup file. */
export const miText = (count: number): string => String(count * MiB);
