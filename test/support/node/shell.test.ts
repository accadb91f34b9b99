import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { greetingShell } from './shell.ts';

const typed = (input: string, lines: readonly string[], command?: readonly string[]): string => {
  const [program = '', ...args] = greetingShell(lines, command);
  return execFileSync(program, args, { input, encoding: 'utf8', stdio: ['pipe', 'pipe', 'ignore'] });
};

test('the shell prints its greeting after the command, and has aliases for the built programs', () => {
  const out = typed('alias resizectl cri-resize-shim; exit\n', ["try: it's easy"], ['echo', 'first']);
  expect(out).toMatch(/^first\ntry: it's easy\n/);
  expect(out).toMatch(/resizectl=.*dist\/resizectl\.js/);
  expect(out).toMatch(/cri-resize-shim=.*dist\/cri-resize-shim\.js/);
});

test('the shell does not start after a command that fails', () => {
  expect(() => typed('exit\n', ['greeting'], ['false'])).toThrow();
});
