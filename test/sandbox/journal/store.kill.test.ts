import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { numberIn, numbered, podUid } from '../../support/journal/numbered.ts';
import type { LoadedRecord } from '../../../src/sandbox/journal/loader.ts';
import { Journal } from '../../../src/sandbox/journal/store.ts';

// Processes that write the journal are killed: at random, and at each crash point.
const root = join(dirname(fileURLToPath(import.meta.url)), '../../..');
let programs: string;
let base: string;
let folder: string;
const program = (crashing: boolean): string => join(programs, crashing ? 'crashing.mjs' : 'plain.mjs');

beforeAll(async () => {
  programs = mkdtempSync(join(tmpdir(), 'journal-writer-'));
  chmodSync(programs, 0o755);
  for (const crashing of [true, false]) {
    await build({
      absWorkingDir: root,
      entryPoints: ['test/support/journal/writer.ts'],
      outfile: program(crashing),
      bundle: true,
      platform: 'node',
      format: 'esm',
      target: 'node24',
      define: { __CRASH_POINTS__: String(crashing) },
      // The bundle has CommonJS packages, which require node's own modules.
      banner: { js: "import { createRequire } from 'node:module'; const require = createRequire(import.meta.url);" },
      logLevel: 'error',
    });
  }
});
afterAll(() => rmSync(programs, { recursive: true }));
beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), 'journal-kill-'));
  folder = join(base, 'state');
});
afterEach(() => rmSync(base, { recursive: true }));

interface Writer {
  readonly child: ChildProcess;
  readonly lines: string[];
  readonly ended: Promise<{ code: number | null; signal: string | null }>;
}

function start(crashing: boolean, args: (string | number)[], options: { env?: object } = {}): Writer {
  const child = spawn(process.execPath, [program(crashing), folder, ...args.map(String)], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ...options.env },
  });
  const lines: string[] = [];
  const reader = createInterface({ input: child.stdout });
  reader.on('line', (line) => {
    lines.push(line);
    child.emit('line', line);
  });
  const ended = Promise.all([once(child, 'close'), once(reader, 'close')]).then(([[code, signal]]) => ({
    code: code as number | null,
    signal: signal as string | null,
  }));
  return { child, lines, ended };
}

const load = async (): Promise<LoadedRecord[]> => {
  const journal = await Journal.open(folder, { bootId: 'boot' });
  try {
    return await journal.load();
  } finally {
    await journal.close();
  }
};
const last = (lines: readonly string[], word: string): number =>
  Number(
    lines
      .filter((line) => line.startsWith(`${word} `))
      .at(-1)
      ?.split(' ')[1] ?? -1,
  );

describe('a killed process', () => {
  test('KEP-1287: a process killed at any moment leaves its last journal record or the previous one, both complete', {
    timeout: 900_000,
  }, async () => {
    const outcomes = { newer: 0, older: 0, betweenWrites: 0 };
    let first = 0;
    for (let round = 0; round < 50; round += 1) {
      const writer = start(false, [first]);
      const wanted = first + Math.floor(Math.random() * 6);
      // From a random record on, a random instant.
      while (last(writer.lines, 'begin') < wanted) await once(writer.child, 'line');
      const until = performance.now() + Math.random() * 8;
      while (performance.now() < until) await new Promise(setImmediate);
      writer.child.kill('SIGKILL');
      expect((await writer.ended).signal).toBe('SIGKILL');

      const done = last(writer.lines, 'done');
      const begun = last(writer.lines, 'begin');
      const records = await load();
      const number = records[0] === undefined ? -1 : numberIn(records[0]);
      expect(records).toEqual(number === -1 ? [] : [{ ...numbered(number), earlierBoot: false }]);
      const before = done === -1 ? first - 1 : done;
      expect([before, begun], `killed in round ${round} after ${writer.lines.slice(-2).join(', ')}`).toContain(number);
      outcomes[begun === done ? 'betweenWrites' : number === begun ? 'newer' : 'older'] += 1;
      expect(readdirSync(folder)).toEqual(number === -1 ? [] : [`${podUid}.json`]);
      first = number + 1;
    }
    // Enough kills are during a write: otherwise the test proves nothing.
    expect(outcomes.older + outcomes.newer).toBeGreaterThan(10);
  });

  test.each([
    ['journal-write-before', [1]],
    ['journal-write-synced', [1]],
    ['journal-write-renamed', [2]],
    ['journal-write-after', [2]],
    ['journal-remove-before', [4]],
    ['journal-remove-unlinked', []],
    ['journal-remove-after', []],
  ])('a process killed at %s leaves the journal records %j', async (point, numbers) => {
    const isWrite = point.startsWith('journal-write');
    const passed = join(base, 'passed');
    const armed = join(base, 'armed');
    writeFileSync(armed, `${point}#${isWrite ? 2 : 1}`);
    const env = { CRI_RESIZE_SHIM_CRASH: armed, CRI_RESIZE_SHIM_CRASH_LOG: passed };
    const writer = start(true, [1, 4], { env });
    expect((await writer.ended).signal).toBe('SIGKILL');
    const names = readFileSync(passed, 'utf8').trim().split('\n');
    expect(names.at(-1)).toBe(point);
    expect(names.filter((name) => name === point)).toHaveLength(isWrite ? 2 : 1);
    expect(await load()).toEqual(numbers.map((number) => ({ ...numbered(number), earlierBoot: false })));
    expect(readdirSync(folder)).toHaveLength(numbers.length);
    // The next process can write and remove records.
    expect((await start(true, [9, 1]).ended).code).toBe(0);
    expect(await load()).toEqual([]);
  });

  test('KEP-1287: a journal writer passes all crash points, before and after each write and removal, in order', async () => {
    const passed = join(base, 'passed');
    const writer = start(true, [1, 2], { env: { CRI_RESIZE_SHIM_CRASH_LOG: passed } });
    expect(await writer.ended).toEqual({ code: 0, signal: null });
    const write = ['before', 'synced', 'renamed', 'after'].map((part) => `journal-write-${part}`);
    const remove = ['before', 'unlinked', 'after'].map((part) => `journal-remove-${part}`);
    expect(readFileSync(passed, 'utf8').trim().split('\n')).toEqual([...write, ...write, ...remove]);
  });

  test('a build without crash points ignores the environment that arms them', async () => {
    const passed = join(base, 'passed');
    const armed = join(base, 'armed');
    writeFileSync(armed, 'journal-write-before#1');
    const env = { CRI_RESIZE_SHIM_CRASH: armed, CRI_RESIZE_SHIM_CRASH_LOG: passed };
    const writer = start(false, [1, 1], { env });
    expect(await writer.ended).toEqual({ code: 0, signal: null });
    expect(writer.lines).toEqual(['begin 1', 'done 1', 'removed']);
    expect(readdirSync(base).sort()).toEqual(['armed', 'state']);
  });
});

describe('a state folder with wrong rights', () => {
  const NOBODY = 65534;
  const isRoot = process.getuid?.() === 0;
  const asNobody = isRoot ? { env: { WRITER_UID: String(NOBODY) } } : {};
  const failure = (lines: readonly string[]): unknown =>
    JSON.parse(lines.find((line) => line.startsWith('failed '))?.slice('failed '.length) ?? '{}');

  test('a state folder that is not accessible causes an error with the file and the errno', async () => {
    mkdirSync(folder, { mode: 0o700 });
    chmodSync(base, 0o000);
    const writer = start(false, [1, 1], asNobody);
    await writer.ended;
    chmodSync(base, 0o700);
    expect(failure(writer.lines)).toMatchObject({
      code: 9,
      reason: 'JOURNAL_UNAVAILABLE',
      context: { pod: podUid, file: join(folder, `${podUid}.json`), errno: 'EACCES' },
    });
  });

  test('a state folder that another user owns is not written to, although its mode allows it', async () => {
    chmodSync(base, 0o777);
    mkdirSync(folder);
    chmodSync(folder, isRoot ? 0o755 : 0o555);
    if (isRoot) chownSync(folder, NOBODY, NOBODY);
    const writer = start(false, [1, 1]);
    await writer.ended;
    expect(failure(writer.lines)).toMatchObject(
      isRoot
        ? {
            message: expect.stringMatching(
              /the state folder is owned by user 65534: expected the shim's user/,
            ) as unknown,
          }
        : { context: { errno: 'EACCES' } },
    );
    expect(readdirSync(folder)).toEqual([]);
  });
});
