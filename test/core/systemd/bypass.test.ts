import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { noLog } from '../../../src/core/observe/interfaces.ts';
import { BypassWatch, lastBypassTarget, takeBypassFiles, writeBypassTarget } from '../../../src/core/systemd/bypass.ts';

const monotonic = (): number => Number(process.hrtime.bigint() / 1000n);

function watch(answers: readonly string[], uptime = 0) {
  const ended: { start: number; end: number }[] = [];
  const logged: string[] = [];
  let at = 0;
  const bypass = new BypassWatch({
    show: () => {
      const answer = answers[at++];
      return answer === undefined ? Promise.reject(new Error('no systemd')) : Promise.resolve(answer);
    },
    uptime: () => uptime,
    onEnd: (times) => void ended.push(times),
    log: { ...noLog, warn: (_fields, message) => void logged.push(message) },
  });
  return { bypass, ended, logged };
}

const shown = (state: string, start: number, end: number): string =>
  `ActiveState=${state}\nActiveEnterTimestampMonotonic=${start}\nInactiveEnterTimestampMonotonic=${end}\n`;

test('upgrade: a bypass that serves when the shim starts is reported with the times of its start and end', async () => {
  const now = monotonic();
  const [start, end] = [now - 60_000_000, now - 1_000_000];
  const { bypass, ended, logged } = watch([shown('active', start, 0), shown('inactive', start, end)]);
  await bypass.run();
  expect(logged).toEqual(['the bypass serves clients', 'the bypass has ended']);
  expect(ended).toHaveLength(1);
  expect(ended[0]!.end - ended[0]!.start).toBeCloseTo(59_000, 2);
  expect(bypass.times.start).toBeCloseTo(ended[0]!.start, -2);
  expect(bypass.times.end).toBe(ended[0]!.end);
});

test('nothing is reported without a bypass since the boot', async () => {
  const { bypass, ended, logged } = watch([shown('inactive', 0, 0)]);
  await bypass.run();
  expect([ended, logged, bypass.times]).toEqual([[], [], { start: undefined, end: undefined }]);
});

test('a bypass that ended before the shim started is known, and not reported again', async () => {
  const { bypass, ended } = watch([shown('inactive', monotonic() - 9_000_000, monotonic() - 8_000_000)]);
  await bypass.run();
  expect(ended).toEqual([]);
  expect(bypass.times.start).toBeLessThan(bypass.times.end!);
});

test('a bypass that has ended between the start of the shim and the first look is reported', async () => {
  const answer = shown('inactive', monotonic() - 9_000_000, monotonic() - 1_000_000);
  const { bypass, ended, logged } = watch([answer], 2000);
  await bypass.run();
  expect([ended.length, logged]).toEqual([1, ['the bypass has ended']]);
});

test('in a container, the state of the bypass is read from the file of the entry point', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'bypass-'));
  const state = join(folder, 'state');
  const write = (active: string, end: string): void =>
    writeFileSync(
      state,
      `ActiveState=${active}\nActiveEnterTimestampMonotonic=@1700000000\nInactiveEnterTimestampMonotonic=${end}\n`,
    );
  write('active', '0');
  const ended: { start: number; end: number }[] = [];
  const log = { ...noLog, warn: () => write('inactive', '@1700000060') };
  const bypass = new BypassWatch({ state, log, onEnd: (times) => void ended.push(times) });
  await bypass.run();
  expect(ended).toEqual([{ start: 1_700_000_000_000, end: 1_700_000_060_000 }]);
  rmSync(folder, { recursive: true });
});

test('without systemd, the state of the bypass is unknown, and the shim continues', async () => {
  const { bypass, logged } = watch([]);
  await bypass.run();
  expect(logged).toEqual(['state of the bypass unknown']);
});

describe('files that a start writes for the bypass', () => {
  let folder: string;

  beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'bypass-'))));

  afterEach(() => rmSync(folder, { recursive: true }));

  test('each start writes the socket of containerd for the bypass, and leaves no temporary file', async () => {
    const file = join(folder, 'target');
    await writeBypassTarget(file, '/run/containerd/containerd.sock', noLog);
    expect(readFileSync(file, 'utf8')).toBe('CRI_RESIZE_SHIM_BYPASS_TO="/run/containerd/containerd.sock"\n');
    await writeBypassTarget(file, '/run/a "b"/$c\\d.sock', noLog);
    expect(readFileSync(file, 'utf8')).toBe('CRI_RESIZE_SHIM_BYPASS_TO="/run/a \\"b\\"/\\$c\\\\d.sock"\n');
    expect(readdirSync(folder)).toEqual(['target']);
    const { ino } = statSync(file);
    await writeBypassTarget(file, '/run/a "b"/$c\\d.sock', noLog);
    expect(statSync(file).ino).toBe(ino);
  });

  test('the socket of the last start is read as it was written for the bypass', async () => {
    const file = join(folder, 'target');
    const env = { CRI_RESIZE_SHIM_BYPASS_FILE: file };
    expect(await lastBypassTarget(env)).toBeUndefined();
    expect(await lastBypassTarget({})).toBeUndefined();
    for (const socket of ['/run/containerd/containerd.sock', '/run/a "b"/$c\\d`.sock']) {
      await writeBypassTarget(file, socket, noLog);
      expect(await lastBypassTarget(env)).toBe(socket);
    }
    for (const text of ['something else\n', 'CRI_RESIZE_SHIM_BYPASS_TO="relative.sock"\n']) {
      writeFileSync(file, text);
      expect(await lastBypassTarget(env)).toBeUndefined();
    }
    expect(env).toEqual({ CRI_RESIZE_SHIM_BYPASS_FILE: file });
  });

  test('a bypass file that cannot be written is logged, and the shim continues', async () => {
    const logged: string[] = [];
    const log = { ...noLog, warn: (_fields: object, message: string) => void logged.push(message) };
    await writeBypassTarget(join(folder, 'none/target'), '/run/containerd/containerd.sock', log);
    await writeBypassTarget(undefined, '/run/containerd/containerd.sock', log);
    expect(logged).toEqual(['socket of containerd not written for the bypass']);
  });

  test('the variables for the bypass are not passed on to child processes', () => {
    const env = { CRI_RESIZE_SHIM_BYPASS_FILE: '/a', CRI_RESIZE_SHIM_BYPASS_STATE: '/b', PATH: '/bin' };
    expect(takeBypassFiles(env)).toEqual({ target: '/a', state: '/b' });
    expect(env).toEqual({ PATH: '/bin' });
  });
});
