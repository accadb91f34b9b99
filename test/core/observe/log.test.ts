import { describe, expect, test } from 'vitest';
import { createLog } from '../../../src/core/observe/log.ts';

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
