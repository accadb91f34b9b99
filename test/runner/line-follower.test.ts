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

/** Follows the file. `received` resolves with all lines once there are `count` of them. */
function follow(count: number): { follower: LineFollower; received: Promise<string[]> } {
  let resolve: (lines: string[]) => void;
  const received = new Promise<string[]>((done) => (resolve = done));
  const follower = new LineFollower(file, (line) => {
    lines.push(line);
    if (lines.length === count) resolve(lines);
  });
  return { follower, received };
}

test('reads each line that is appended to a file once and whole', async () => {
  writeFileSync(file, 'first\nsec');
  const { follower, received } = follow(3);
  expect(lines).toEqual(['first']);
  appendFileSync(file, 'ond\nthird £');
  appendFileSync(file, '\n');
  expect(await received).toEqual(['first', 'second', 'third £']);
  follower.close();
  expect(lines).toHaveLength(3);
});

test('creates a missing file, and reads lines at the end that no event has reported yet', () => {
  const { follower } = follow(1);
  appendFileSync(file, 'late\nunfinished');
  follower.close();
  expect(lines).toEqual(['late']);
});
