import { closeSync, fstatSync, openSync } from 'node:fs';
import { expect, test, vi } from 'vitest';
import { errorLines, leadsToJournal, withPriority } from '../../../src/core/observe/journal-priority.ts';
import { createLog } from '../../../src/core/observe/log.ts';

test('each line of the log gets the priority of its level, and is JSON without it', () => {
  const lines: string[] = [];
  const log = createLog({ level: 'trace', destination: { write: (line) => void lines.push(withPriority(line)) } });
  for (const level of ['debug', 'info', 'warn', 'error'] as const) log[level]({ level: 'no' }, 'text');
  expect(lines.map((line) => line.slice(0, 3))).toEqual(['<7>', '<6>', '<4>', '<3>']);
  expect(lines.map((line) => (JSON.parse(line.slice(3)) as { msg: string }).msg)).toEqual(lines.map(() => 'text'));
});

test('a line that does not come from the log gets the priority of level info', () => {
  expect(withPriority('plain\n')).toBe('<6>plain\n');
});

test('a descriptor is connected to the journal only if JOURNAL_STREAM has its device and inode', () => {
  const descriptor = openSync('/dev/null', 'r');
  const { dev, ino } = fstatSync(descriptor, { bigint: true });
  expect(leadsToJournal(descriptor, { JOURNAL_STREAM: `${dev}:${ino}` })).toBe(true);
  // A daemon whose output was redirected still has the variable.
  expect(leadsToJournal(descriptor, { JOURNAL_STREAM: `${dev}:${ino + 1n}` })).toBe(false);
  expect(leadsToJournal(descriptor, {})).toBe(false);
  closeSync(descriptor);
  expect(leadsToJournal(descriptor, { JOURNAL_STREAM: `${dev}:${ino}` })).toBe(false);
});

test('each line of an error gets its priority in the journal, and no priority elsewhere', () => {
  const descriptor = openSync('/dev/null', 'r');
  const { dev, ino } = fstatSync(descriptor, { bigint: true });
  expect(errorLines('a\nb\n', descriptor)).toBe('a\nb\n');
  vi.stubEnv('JOURNAL_STREAM', `${dev}:${ino}`);
  expect(errorLines('a\nb\n', descriptor)).toBe('<3>a\n<3>b\n');
  vi.unstubAllEnvs();
  closeSync(descriptor);
});
