import type { Random } from '../random.ts';

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
      // A write that reached the disk in part: the rest of the block has zeros.
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
