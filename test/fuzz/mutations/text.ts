import type { Random } from '../random.ts';
import { mutateBytes } from './bytes.ts';
import { NUMBERS, hostileText } from './values.ts';

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
