import { describe, expect, test } from 'vitest';
import { assignmentsIn, invalidTextIn } from '../../../src/kubelet/endpoint/unit-command.ts';

// systemd 257 starts a program with these values: npm run node -- --init systemd.
describe('assignments in an environment file', () => {
  test.each([
    [
      'a quoted value of several lines',
      'A="--one\n--two"\nB=\'x\n# no comment\ny\'\n',
      { A: '--one\n--two', B: 'x\n# no comment\ny' },
    ],
    ['a backslash that continues a line', 'A=x\\\ny\nB="x \\\n  y"\n', { A: 'xy', B: 'x   y' }],
    ['quotes, a backslash and a second quoted part', 'A="v1" \\\n  "v2"\n', { A: 'v1  "v2"' }],
    ['several quoted parts', 'A="a b"\'c d\'"e"\n', { A: 'a bc de' }],
    ['quotes inside of a value', 'A=a"b c"d\\e\n', { A: 'a"b c"de' }],
    ['a backslash in double quotes', 'A="\\$x \\" \\\\ \\n \\`"\n', { A: '$x " \\ \\n `' }],
    ['a backslash in single quotes', "A='a\\nb'\n", { A: 'a\\nb' }],
    ['blanks around names and values', '  A  =  x y  \r\n B=\n C = "z "  \n', { A: 'x y', B: '', C: 'z ' }],
    ['blanks before a backslash', 'A=x \\\n\n', { A: 'x ' }],
    ['comments', '# A=1 \\\n; B=2\nC=3 # not a comment\n', { C: '3 # not a comment' }],
    ['names that no shell has', 'export A=1\n1B=2\nC-D=3\nno assignment\n=x\nE=5\n', { E: '5' }],
    ['a value of which a later one overrides the first', 'A=1\nA=2\n', { A: '2' }],
    ['no newline at its end', 'A=x  ', { A: 'x' }],
    ['quotes that are never closed', 'A="--x\nB=1\n', { A: '--x\nB=1\n' }],
    ['nothing', '', {}],
  ])('reads an environment file with %s', (_, text, expected) => {
    expect(Object.fromEntries(assignmentsIn(text))).toEqual(expected);
  });
});

// As load_env_file_push in systemd's src/basic/env-file.c.
describe('invalid UTF-8 in an environment file', () => {
  test.each([
    ['a comment', '# gr\u00fcn\n; \u00e4 \\\n\u00e4\nA=1\n', undefined],
    ['a line without an assignment', 'gr\u00fcn\nA=1\n', undefined],
    ['a value', 'B=1\nA=gr\u00fcn\n', 'the value of A'],
    ['a quoted value', 'A="\n# \u00fc\n"\n', 'the value of A'],
    ['a name', '\u00fc=1\n', 'the name of a variable'],
    ['the value of a name that systemd ignores', 'export A=\u00fc\n', 'the value of export A'],
  ])('rejects invalid UTF-8 in an environment file only in names and values: %s', (_, text, expected) => {
    expect(invalidTextIn(Buffer.from(text, 'latin1'))).toBe(expected);
    expect(invalidTextIn(Buffer.from(text, 'utf8'))).toBeUndefined();
  });

  test('accepts and ignores a variable whose name ends with a no-break space', () => {
    expect(invalidTextIn(Buffer.from('a\u00a0 = 1\n', 'utf8'))).toBeUndefined();
    expect(assignmentsIn('A\u00a0=1\n')).toEqual([]);
  });
});
