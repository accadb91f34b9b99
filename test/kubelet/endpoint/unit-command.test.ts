import { describe, expect, test } from 'vitest';
import {
  assignmentsIn,
  invalidTextIn,
  printedVariables,
  wordsOfUnit,
} from '../../../src/kubelet/endpoint/unit-command.ts';

const command = (words: string): string =>
  `{ path=${words.split(' ', 1)[0] ?? ''} ; argv[]=${words} ; ignore_errors=no ; start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }`;
const words = (execStart: string, environment = '', files: readonly string[] = []): readonly string[] =>
  wordsOfUnit({ execStart: command(execStart), environment, files });

describe('command line of a unit', () => {
  test('expands variables of kubeadm’s unit and its environment files; a later file overrides an earlier one', () => {
    const all = words(
      '/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS',
      '"KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/b --kubeconfig=/k" KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml',
      [
        '# flags\nKUBELET_KUBEADM_ARGS="--a=1 --b=2"\n',
        '; none\nKUBELET_KUBEADM_ARGS=--a=3 --c=4\nnot an assignment\n',
      ],
    );
    expect(all).toEqual([
      '/usr/bin/kubelet',
      '--bootstrap-kubeconfig=/b',
      '--kubeconfig=/k',
      '--config=/var/lib/kubelet/config.yaml',
      '--a=3',
      '--c=4',
    ]);
  });

  test.each([
    [
      'a value in braces, as a part of one word',
      '/k --config=${DIR}/a.yaml',
      'DIR=/etc',
      '',
      ['/k', '--config=/etc/a.yaml'],
    ],
    ['a dollar sign that is doubled', '/k --a=$$x', '', '', ['/k', '--a=$x']],
    ['quoted words of a value', '/k $A', '', `A="--x='1 2' --y"`, ['/k', '--x=1 2', '--y']],
    ['a quoted value with quotes in it', '/k $A', '', 'A="--x=\\"1 2\\""', ['/k', '--x=1 2']],
    ['a value in single quotes', '/k $A', '', "A='--x --y'", ['/k', '--x', '--y']],
    ['a value of two lines', '/k $A', '', 'A=--x \\\n  --y', ['/k', '--x', '--y']],
    ['nothing for a word that is not set, and an empty word for one in braces', '/k $A ${B}', '', '', ['/k', '']],
    ['no variable whose dollar sign is not the first character', '/k pre$A', 'A=x', '', ['/k', 'pre$A']],
    ['a quote that is never closed', '/k $A', '', 'A=--a "--b c', ['/k', '--a', '--b c']],
    ['a backslash in quotes', '/k $A', '', 'A="--a=\'1\\\\ 2\'"', ['/k', '--a=1 2']],
  ])('expands a command line as systemd does: %s', (_, execStart, environment, file, expected) => {
    expect(words(execStart, environment, [file])).toEqual(expected);
  });

  // The examples show the output and the parsing of systemd 257.
  test('decodes the escapes of systemctl: a value of several lines, quotes, a dollar sign and a backslash', () => {
    const environment = String.raw`"A=--one\n--two" "B=it's \"q\" \$x \\back" C=--c "D=tab\tx" E=`;
    expect(words('/k $A ${B} $C $D ${E}', environment)).toEqual([
      ...['/k', '--one', '--two', String.raw`it's "q" $x \back`, '--c', 'tab', 'x', ''],
    ]);
  });

  test('does not expand variables that UnsetEnvironment removes', () => {
    const unit = { execStart: command('/k $A $B $C'), environment: 'A=--a B=--b C=--c', files: [] };
    expect(wordsOfUnit({ ...unit, unsetEnvironment: 'A B=--b C=--x' })).toEqual(['/k', '--c']);
  });

  test('expands variables that a unit inherits from systemd, unless the unit overrides them', () => {
    const inherited = printedVariables("LANG=C.UTF-8\nA=--a\nB=$'--b\\n--c'\nnone\n");
    const unit = { execStart: command('/k $A $B $LANG'), environment: 'A=--own', files: ['LANG=--file'] };
    expect(wordsOfUnit({ ...unit, inherited })).toEqual(['/k', '--own', '--b', '--c', '--file']);
  });

  test('does not expand variables of a command that begins with a colon', () => {
    const execStartEx = '{ path=/k ; argv[]=/k $A ; flags=ignore-failure no-env-expand ; pid=0 }';
    const unit = { execStart: command('/k $A ${A} $$A'), environment: 'A=--a', files: [] };
    expect(wordsOfUnit({ ...unit, execStartEx })).toEqual(['/k', '$A', '${A}', '$$A']);
  });

  test('the first word of a command is the path of the program, also if it runs under another name', () => {
    const execStart = '{ path=/usr/bin/kubelet ; argv[]=hyper --v=2 ; ignore_errors=no ; pid=0 }';
    expect(wordsOfUnit({ execStart, environment: '', files: [] })).toEqual(['/usr/bin/kubelet', '--v=2']);
  });

  test('returns no command line if systemctl hides the variables', () => {
    expect(words('/k $A', 'B=1 [unprintable]')).toEqual([]);
  });

  test('returns no command line for a unit without a command', () => {
    expect(wordsOfUnit({ execStart: '', environment: '', files: [] })).toEqual([]);
  });
});

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
    ['names that are invalid in a shell', 'export A=1\n1B=2\nC-D=3\nno assignment\n=x\nE=5\n', { E: '5' }],
    ['a value of which a later one overrides the first', 'A=1\nA=2\n', { A: '2' }],
    ['no newline at its end', 'A=x  ', { A: 'x' }],
    ['quotes that are never closed', 'A="--x\nB=1\n', { A: '--x\nB=1\n' }],
    ['nothing', '', {}],
  ])('reads an environment file with %s', (_, text, expected) => {
    expect(Object.fromEntries(assignmentsIn(text))).toEqual(expected);
  });
});

// Equals load_env_file_push in systemd's src/basic/env-file.c.
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
