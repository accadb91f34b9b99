import { Writable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { BoundedWriter, createLog, LOG_LIMITS } from '../../../src/core/observe/log.ts';

describe('a log', () => {
  const lines: string[] = [];
  const write = (level: 'debug' | 'warn'): Record<string, unknown>[] => {
    lines.length = 0;
    const log = createLog({ level, destination: { write: (line) => void lines.push(line) } });
    log.debug({ a: 1 }, 'one');
    log.info({ b: 'x', list: ['p', 'q'], none: undefined }, 'two');
    log.warn({}, 'three');
    log.error({ ok: false }, 'four');
    return lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  };

  test('a log has one JSON object per line, with the name of the level and the time in ISO 8601', () => {
    const [first, second] = write('debug');
    expect(first).toEqual({ level: 'debug', time: first?.['time'], a: 1, msg: 'one' });
    expect(second).toEqual({ level: 'info', time: second?.['time'], b: 'x', list: ['p', 'q'], msg: 'two' });
    expect(new Date(String(first?.['time'])).toISOString()).toBe(first?.['time']);
    expect(lines.every((line) => line.endsWith('\n') && line.indexOf('\n') === line.length - 1)).toBe(true);
  });

  test('a log has no lines below its level', () => {
    expect(write('warn').map(({ msg }) => msg)).toEqual(['three', 'four']);
  });
});

describe('the lines of a log whose reader stalls', () => {
  test('log lines wait for a stalled reader up to the limit, are dropped and counted beyond it, and continue with the reader', () => {
    const pending: (() => void)[] = [];
    const read: string[] = [];
    const reader = new Writable({
      decodeStrings: false,
      write: (line: string, _, done) => {
        read.push(line);
        pending.push(done);
      },
    });
    let dropped = 0;
    const writer = new BoundedWriter(reader, 10_000, () => (dropped += 1));
    for (let at = 0; at < 1000; at += 1) writer.write(`${'x'.repeat(99)}\n`);
    expect(reader.writableLength).toBe(10_000);
    expect(dropped).toBe(900);
    pending.shift()?.();
    writer.write('y\n');
    expect(dropped).toBe(900);
  });

  test('log lines are dropped when the reader is gone', () => {
    const reader = new Writable({ write: (_chunk, _encoding, done) => done() });
    let dropped = 0;
    const writer = new BoundedWriter(reader, 10_000, () => (dropped += 1));
    reader.destroy(new Error('EPIPE'));
    writer.write('x\n');
    expect(dropped).toBe(1);
  });
});

describe('the lines of one message', () => {
  const logged = (count: number, level: 'info' | 'warn') => {
    const lines: { msg: string; count?: number; message?: string }[] = [];
    const drops: string[] = [];
    let now = 0;
    const log = createLog({
      level: 'info',
      destination: { write: (line) => void lines.push(JSON.parse(line) as { msg: string }) },
      dropped: (reason) => drops.push(reason),
      now: () => now,
    });
    for (let at = 0; at < count; at += 1) log[level]({ at }, 'a connection is bad');
    return { lines, drops, log, after: (ms: number) => (now += ms) };
  };

  test('L3: lines of one message are limited, and the suppressed lines are counted and reported', () => {
    const { lines, drops, log, after } = logged(5000, 'warn');
    expect(lines).toHaveLength(10 * LOG_LIMITS.warningsPerSecond);
    expect(drops).toHaveLength(5000 - lines.length);
    expect(new Set(drops)).toEqual(new Set(['rate']));
    log.warn({}, 'another');
    expect(lines.at(-1)?.msg).toBe('another');
    after(1000);
    log.warn({}, 'a connection is bad');
    expect(lines.at(-2)).toMatchObject({
      msg: 'log lines suppressed',
      message: 'a connection is bad',
      count: drops.length,
    });
    expect(lines.at(-1)?.msg).toBe('a connection is bad');
  });

  test('the limit for one message has room for the lines of a busy node', () => {
    expect(logged(2 * LOG_LIMITS.linesPerSecond, 'info').drops).toEqual([]);
  });
});
