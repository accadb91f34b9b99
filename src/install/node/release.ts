/** The numbers with which a release begins: `6.1.0-18-amd64` is 6, 1 and 0. */
export function numbersOf(release: string): number[] {
  const [numbers = ''] = /^\d+(\.\d+)*/.exec(release) ?? [];
  return numbers === '' ? [] : numbers.split('.').map(Number);
}

/** Whether a release is that one or later. One without numbers is not. */
export function isAtLeast(release: string, least: string): boolean {
  const [found, wanted] = [numbersOf(release), numbersOf(least)];
  if (found.length === 0) return false;
  for (const [index, number] of wanted.entries()) {
    const other = found[index] ?? 0;
    if (other !== number) return other > number;
  }
  return true;
}
