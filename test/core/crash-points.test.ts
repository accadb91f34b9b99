import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { crashPoint, crashPoints } from '../../src/core/crash-points.ts';
import { Program } from '../support/daemon/daemon-program.ts';

const root = join(dirname(fileURLToPath(import.meta.url)), '../..');
const VARIABLE = 'CRI_RESIZE_SHIM_CRASH';
const built = join(root, 'dist');
let scratch: string;

beforeAll(() => {
  scratch = mkdtempSync(join(tmpdir(), 'crash-points-'));
});
afterAll(() => rmSync(scratch, { recursive: true }));
afterEach(() => vi.unstubAllEnvs());

const shipped = (): string[] => [
  join(built, 'cri-resize-shim.js'),
  // Without the source maps, which are not executed.
  ...readdirSync(join(built, 'chunks'))
    .filter((name) => name.endsWith('.js'))
    .map((name) => join(built, 'chunks', name)),
];
const crashing = (): string => join(built, 'tools/cri-resize-shim-crash.js');

describe('crash points', () => {
  test('the test build has crash points, and the shipped build has no trace of them', () => {
    expect(readFileSync(crashing(), 'utf8')).toContain(VARIABLE);
    const names = crashPoints.filter((point) => point !== 'serving');
    expect(shipped().length).toBeGreaterThan(1);
    for (const file of shipped())
      expect(readFileSync(file, 'utf8')).not.toMatch(
        new RegExp(['CRI_RESIZE_SHIM_CRASH', 'crashPoint', ...names].join('|')),
      );
  });

  test.each([
    ['the test build ends at a crash point', () => crashing(), 'SIGKILL', ['serving']],
    ['the shipped build has no crash points', () => shipped()[0]!, 'SIGTERM', undefined],
  ])('an armed crash point ends the process only in the test build: %s', async (_, file, end, passed) => {
    const folder = join(scratch, `run-${end}`);
    const log = join(folder, 'passed');
    const armed = join(folder, 'armed');
    mkdirSync(folder);
    writeFileSync(armed, 'remount-before#1\nserving#1\nserving#3');
    vi.stubEnv(VARIABLE, armed);
    vi.stubEnv(`${VARIABLE}_LOG`, log);
    const listen = join(folder, 'shim/shim.sock');
    const program = new Program(file(), [
      '--listen',
      listen,
      '--container-runtime-endpoint',
      join(folder, 'none.sock'),
    ]);
    await program.logged('serving');
    if (end === 'SIGTERM') program.kill('SIGTERM');
    expect(await program.exited).toEqual(
      end === 'SIGTERM' ? { code: 0, signal: null } : { code: null, signal: 'SIGKILL' },
    );
    // A crash point at which the process has ended is removed; the others remain.
    expect(readFileSync(armed, 'utf8').includes('serving#1')).toBe(end === 'SIGTERM');
    expect(readFileSync(armed, 'utf8')).toContain('remount-before#1');
    // Each line has its own count.
    expect(readFileSync(armed, 'utf8')).toContain(end === 'SIGTERM' ? 'serving#3' : 'serving#2');
    expect(existsSync(log) ? readFileSync(log, 'utf8').trim().split('\n') : undefined).toEqual(passed);
  });

  test('crash points do nothing without a build constant, as under vitest', () => {
    const log = join(scratch, 'under-vitest');
    appendFileSync(log, '');
    vi.stubEnv(VARIABLE, log);
    vi.stubEnv(`${VARIABLE}_LOG`, log);
    crashPoint('serving');
    expect(readFileSync(log, 'utf8')).toBe('');
  });
});
