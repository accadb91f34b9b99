import { describe, expect, test } from 'vitest';
import { commandTexts } from '../../src/resizectl/command-table.ts';
import { parseChanges } from '../../src/resizectl/commands/changes.ts';
import { UsageError } from '../../src/resizectl/output/failure.ts';
import { parseCommandLine } from '../../src/resizectl/program.ts';

function usage(read: () => unknown): string {
  try {
    read();
  } catch (error) {
    if (error instanceof UsageError) return error.message;
    throw error;
  }
  throw new Error('no UsageError was thrown');
}

describe('parseCommandLine', () => {
  test('reads a command with options in any position', () => {
    expect(parseCommandLine(['resize', 'web', 'a.cpu=1', 'b.cpu=2', '--defer', '--timeout=5s', '-o', 'json'])).toEqual({
      ...{ ask: 'run', command: 'resize', args: ['web', 'a.cpu=1', 'b.cpu=2'] },
      ...{
        options: { defer: true, timeout: '5s' },
        output: 'json',
        isWide: false,
        namespace: undefined,
        endpoint: 'unix:///run/cri-resize-shim/resize.sock',
      },
    });
    expect(parseCommandLine(['--endpoint', '/run/x.sock', 'get', 'pod', 'web'])).toMatchObject({
      ...{ command: 'get pod', args: ['web'], output: 'table', endpoint: '/run/x.sock' },
    });
    expect(parseCommandLine(['get', 'po', '-n', 'default', 'web', 'db', '-o', 'wide'])).toMatchObject({
      ...{ command: 'get pods', args: ['web', 'db'], output: 'table', isWide: true, namespace: 'default' },
    });
    expect(parseCommandLine(['events'])).toMatchObject({ command: 'events', args: [] });
  });

  test.each([
    [[], /missing command/],
    [['get'], /incomplete command 'get': expected get pods or get pod$/],
    [['get', 'nodes'], /unknown command 'get nodes': expected get pods or get pod$/],
    [['scale', 'web'], /unknown command 'scale'/],
    [['resize', 'web'], /missing required argument 'CHANGE'/],
    [['watch', 'a', 'b'], /too many arguments/],
    [['get', 'pods', '-n', 'default', '-A'], /-n default and -A exclude each other/],
    [['get', 'pods', '-o', 'xml'], /'xml' is invalid. Allowed choices are table, wide, json, yaml, name/],
    [['get', 'pods', '--defer'], /unknown option '--defer'/],
  ])('rejects %j', (argv, message) => {
    expect(usage(() => parseCommandLine(argv))).toMatch(message);
  });

  test('prints all commands, options and examples with --help', () => {
    const help = (...argv: string[]): string => {
      const read = parseCommandLine([...argv, '--help']);
      return read.ask === 'print' ? read.text : '';
    };
    const whole = help().replace(/\s+/g, ' ');
    for (const { name } of commandTexts) expect(whole).toContain(` ${name.split(' ')[0]!}`);
    expect(whole).toContain(
      '3 rejected, does not fit yet (without --defer), or failed and rolled back: the pod, or the node, is unchanged',
    );
    for (const { name, summary, options, examples } of commandTexts) {
      const text = help(...name.split(' ')).replace(/\s+/g, ' ');
      expect(text.toLowerCase()).toContain(summary.toLowerCase());
      for (const { flags } of options) expect(text).toContain(flags);
      for (const [line] of examples) expect(text).toContain(line);
    }
  });

  test('accepts each example of --help', () => {
    for (const [line] of commandTexts.flatMap(({ examples }) => examples)) {
      const [words = ''] = line.split(/ [|>] /);
      const read = parseCommandLine(words.split(' ').slice(1));
      expect(read.ask).toBe('run');
      if (read.ask === 'run' && (read.command === 'resize' || read.command === 'plan'))
        parseChanges(read.args.slice(1));
    }
  });
});
