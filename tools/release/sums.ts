import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { basename } from 'node:path';
import { pipeline } from 'node:stream/promises';

/** Returns the lines of SHA256SUMS, sorted by name: `sha256sum --check` reads them. */
export async function sumsOf(files: readonly string[]): Promise<string> {
  const lines: string[] = [];
  for (const file of files.toSorted((one, other) => (basename(one) < basename(other) ? -1 : 1))) {
    const hash = createHash('sha256');
    await pipeline(createReadStream(file), hash);
    lines.push(`${hash.digest('hex')}  ${basename(file)}\n`);
  }
  return lines.join('');
}

/** Returns the names whose sums differ between two builds, or that only one of them has. */
export function differing(one: string, other: string): string[] {
  const [first, second] = [linesOf(one), linesOf(other)];
  const names = new Set([...first.keys(), ...second.keys()]);
  return [...names].filter((name) => first.get(name) !== second.get(name));
}

const linesOf = (sums: string): Map<string, string> =>
  new Map(
    sums
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => [line.slice(66), line.slice(0, 64)]),
  );
