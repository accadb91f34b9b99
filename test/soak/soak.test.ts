import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { MiB } from '../../src/core/quantities/sizes.ts';
import type { SoakFigures, Window } from './figures.ts';
import { changeOf, LEAST_WINDOWS, p99 } from './figures.ts';
import { SoakStage } from './stage.ts';

const resizes = Number(process.env['SOAK_RESIZES']);
const replaced = Number(process.env['SOAK_PODS']);
/** A window is long enough for a 99th percentile, and there are enough windows for both ends. */
const length = Math.min(1000, Math.floor(resizes / LEAST_WINDOWS));
/** Connections that are about to close. */
const MOST_DESCRIPTORS = 4;

/** The command has a separate time limit. */
const LONGEST_MS = 24 * 3_600_000;

/** The file with the figures, which the process that started the node reads. */
const out = join(process.env['NODE_OUT'] ?? '.', 'soak.json');
const stage = new SoakStage();
const windows: Window[] = [];

async function oneWindow(from: number): Promise<Window> {
  const durations: number[] = [];
  for (let number = from; number < from + length; number += 1) {
    const start = performance.now();
    await stage.resize(number);
    durations.push(performance.now() - start);
    if (Math.floor(((number + 1) * replaced) / resizes) > Math.floor((number * replaced) / resizes))
      await stage.replacePod();
  }
  return { durations, resident: stage.resident, descriptors: stage.descriptors };
}

beforeAll(() => stage.begin());
afterAll(() => stage.end());

/** Writes the figures measured so far, so that a stopped soak has figures too. */
function writeFigures(resizes: number, seconds: number): void {
  if (windows.length < LEAST_WINDOWS) return;
  const figures: SoakFigures = {
    resizes,
    seconds,
    pods: stage.replaced,
    resident: changeOf(windows, ({ resident }) => resident),
    descriptors: changeOf(windows, ({ descriptors }) => descriptors),
    p99: changeOf(windows, p99),
  };
  writeFileSync(out, JSON.stringify(figures));
}

test(
  `${resizes} resizes through every interface succeed, while ${replaced} pods are replaced`,
  async () => {
    const start = performance.now();
    for (let from = 0; from + length <= resizes; from += length) {
      const window = await oneWindow(from);
      windows.push(window);
      const { resident, descriptors } = window;
      process.stdout.write(
        `soak: ${from + length} resizes, p99 ${p99(window).toFixed(0)} ms, ${(resident / MiB).toFixed(1)} MiB resident, ` +
          `${descriptors} descriptors\n`,
      );
      writeFigures(from + length, Math.round((performance.now() - start) / 1000));
    }
  },
  LONGEST_MS,
);

test('resident memory grows by less than 5 MiB', () => {
  const { first, last } = changeOf(windows, ({ resident }) => resident);
  expect((last - first) / MiB).toBeLessThan(5);
});

test('the number of open descriptors grows by at most 4', () => {
  const { first, last } = changeOf(windows, ({ descriptors }) => descriptors);
  expect(last - first).toBeLessThanOrEqual(MOST_DESCRIPTORS);
});

test('no file of a removed pod is left', () => {
  expect(stage.leftovers).toEqual([]);
});

test('the 99th percentile of resize durations grows by at most 10 %', () => {
  const { first, last } = changeOf(windows, p99);
  expect(last / first).toBeLessThanOrEqual(1.1);
});

test('no process is OOM-killed', () => {
  expect(stage.oomKills).toBe(0);
});
