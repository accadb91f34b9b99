import { appendFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { LineFollower } from './line-follower.ts';

let folder: string;
let file: string;
let lines: string[];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'lines-'));
  file = join(folder, 'lines');
  lines = [];
});
afterEach(() => rmSync(folder, { recursive: true }));

/** Resolves with all lines so far as soon as there are this many. */
function following(count: number): { follower: LineFollower; come: Promise<string[]> } {
  let resolve: (lines: string[]) => void;
  const come = new Promise<string[]>((done) => (resolve = done));
  const follower = new LineFollower(file, (line) => {
    lines.push(line);
    if (lines.length === count) resolve(lines);
  });
  return { follower, come };
}

test('lines come as they are appended, each once and whole', async () => {
  writeFileSync(file, 'first\nsec');
  const { follower, come } = following(3);
  expect(lines).toEqual(['first']);
  appendFileSync(file, 'ond\nthird £');
  appendFileSync(file, '\n');
  expect(await come).toEqual(['first', 'second', 'third £']);
  follower.close();
  expect(lines).toHaveLength(3);
});

test('a file that does not exist is created, and lines that nobody was notified of yet come at the end', () => {
  const { follower } = following(1);
  appendFileSync(file, 'late\nunfinished');
  follower.close();
  expect(lines).toEqual(['late']);
});
