import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { commandTexts } from '../../../src/resizectl/command-table.ts';
import { completionScript } from '../../../src/resizectl/commands/completion.ts';
import { remedies } from '../../../src/resizectl/output/remedies.ts';
import { UsageError } from '../../../src/resizectl/output/failure.ts';
import { manualPage } from '../../../src/resizectl/commands/manual.ts';
import { parseCommandLine } from '../../../src/resizectl/program.ts';
import { parseChanges } from '../../../src/resizectl/commands/changes.ts';

function usage(read: () => unknown): string {
  try {
    read();
  } catch (error) {
    if (error instanceof UsageError) return error.message;
    throw error;
  }
  throw new Error('it was taken');
}

describe('changes', () => {
  test('are limits, requests and sizes, of containers, the pod and volumes', () => {
    const asked = parseChanges([
      ...['app.cpu=500m', 'app.memory=256Mi', 'app.requests.cpu=0.25', 'side.limits.memory=1e8', 'side.cpu=max'],
      ...['pod.memory=1Gi', 'pod.requests.memory=512Mi', 'volume.cache=50%/app', 'volume.tmp=follow', 'pod.cpu=-1'],
    ]);
    expect(asked).toEqual({
      resources: { limits: { memory: '1Gi', cpu: 'max' }, requests: { memory: '512Mi' } },
      containers: {
        app: { limits: { cpu: '500m', memory: '256Mi' }, requests: { cpu: '0.25' } },
        side: { limits: { memory: '1e8', cpu: 'max' } },
      },
      volumes: { cache: '50%/app', tmp: 'follow' },
    });
  });

  test('a container may have any name, a volume too', () => {
    expect(
      parseChanges(['container/pod.cpu=1', 'container/volume.cpu=2', 'container.cpu=3', '__proto__.cpu=4']),
    ).toEqual({
      containers: Object.fromEntries([
        ['pod', { limits: { cpu: '1' } }],
        ['volume', { limits: { cpu: '2' } }],
        ['container', { limits: { cpu: '3' } }],
        ['__proto__', { limits: { cpu: '4' } }],
      ]),
      volumes: {},
    });
    expect(parseChanges(['volume.cpu=50%']).volumes).toEqual({ cpu: '50%' });
  });

  test.each([
    ['app.cpu', /^invalid change "app\.cpu": expected CONTAINER\.cpu=QUANTITY, /],
    ['app.cpu=', /^invalid change/],
    ['cpu=1', /^invalid change/],
    ['.cpu=1', /^invalid change/],
    ['app.gpu=1', /^invalid change/],
    ['app.max.cpu=1', /^invalid change/],
    ['a.b.c.cpu=1', /^invalid change/],
    ['pod/app.cpu=1', /^invalid change/],
    ['app.cpu=fast', /^app\.cpu: invalid quantity "fast": expected CPUs such as 500m or 1\.5, or max for no limit$/],
    ['app.memory=-5', /^app\.memory: invalid quantity "-5"/],
    [
      'app.requests.memory=max',
      /^app\.requests\.memory: invalid quantity "max": expected an amount of memory such as 256Mi or 1G$/,
    ],
    ['app.memory=256mi', /invalid quantity/],
    ['app.cpu=0', /^app\.cpu: invalid limit 0: use max to remove the limit$/],
    ['app.requests.cpu=0', /^app\.requests\.cpu: invalid request 0: leave it out to keep the current request$/],
  ])('%s is none', (text, message) => {
    expect(usage(() => parseChanges([text]))).toMatch(message);
  });

  test.each([
    [['app.cpu=1', 'app.cpu=2'], 'app.cpu is set twice'],
    [['app.cpu=1', 'container/app.limits.cpu=2'], 'container/app.limits.cpu is set twice'],
    [['volume.a=1Mi', 'volume.a=1Mi'], 'volume.a is set twice'],
  ])('%j contradict each other', (texts, message) => {
    expect(usage(() => parseChanges(texts))).toBe(message);
  });
});

describe('the command line', () => {
  test('names a command, with options wherever they stand', () => {
    expect(parseCommandLine(['resize', 'web', 'a.cpu=1', 'b.cpu=2', '--defer', '--timeout=5s', '-o', 'json'])).toEqual({
      ...{ ask: 'run', command: 'resize', args: ['web', 'a.cpu=1', 'b.cpu=2'] },
      ...{
        options: { defer: true, timeout: '5s' },
        output: 'json',
        endpoint: 'unix:///run/cri-resize-shim/resize.sock',
      },
    });
    expect(parseCommandLine(['--endpoint', '/run/x.sock', 'get', 'pod', 'web'])).toMatchObject({
      ...{ command: 'get pod', args: ['web'], output: 'table', endpoint: '/run/x.sock' },
    });
    expect(parseCommandLine(['events'])).toMatchObject({ command: 'events', args: [] });
  });

  test.each([
    [[], /missing command/],
    [['get'], /incomplete command 'get': expected get pods or get pod$/],
    [['get', 'nodes'], /unknown command 'get nodes': expected get pods or get pod$/],
    [['scale', 'web'], /unknown command 'scale'/],
    [['resize', 'web'], /missing required argument 'CHANGE'/],
    [['get', 'pod', 'a', 'b'], /too many arguments/],
    [['get', 'pods', '-o', 'xml'], /'xml' is invalid. Allowed choices are table, json, yaml, name/],
    [['get', 'pods', '--defer'], /unknown option '--defer'/],
  ])('%j is none', (argv, message) => {
    expect(usage(() => parseCommandLine(argv))).toMatch(message);
  });

  test('--help says all that there is, of each command too', () => {
    const help = (...argv: string[]): string => {
      const read = parseCommandLine([...argv, '--help']);
      return read.ask === 'print' ? read.text : '';
    };
    const whole = help().replace(/\s+/g, ' ');
    for (const { name } of commandTexts) expect(whole).toContain(` ${name.split(' ')[0]!}`);
    expect(whole).toContain(
      '3 rejected, does not fit yet (without --defer), or failed and rolled back: the pod is unchanged',
    );
    for (const { name, summary, options, examples } of commandTexts) {
      const text = help(...name.split(' ')).replace(/\s+/g, ' ');
      expect(text.toLowerCase()).toContain(summary.toLowerCase());
      for (const { flags } of options) expect(text).toContain(flags);
      for (const [line] of examples) expect(text).toContain(line);
    }
  });

  test('each example is a command line that is taken', () => {
    for (const [line] of commandTexts.flatMap(({ examples }) => examples)) {
      const [words = ''] = line.split(/ [|>] /);
      const read = parseCommandLine(words.split(' ').slice(1));
      expect(read.ask).toBe('run');
      if (read.ask === 'run' && (read.command === 'resize' || read.command === 'plan'))
        parseChanges(read.args.slice(1));
    }
  });
});

describe('completion', () => {
  /** What bash offers for these words. `resizectl` itself is a stand-in that lists pods. */
  function offered(...words: string[]): string[] {
    const script = `
      resizectl() { [ "$*" = 'get pods -o name' ] && printf 'default/web\\ndefault/db\\n'; }
      ${completionScript('bash')}
      COMP_WORDS=("$@"); COMP_CWORD=$((\${#COMP_WORDS[@]} - 1)); _resizectl; printf '%s\\n' "\${COMPREPLY[@]}"`;
    const out = execFileSync('bash', ['-c', script, 'bash', 'resizectl', ...words], { encoding: 'utf8' });
    return out.split('\n').filter(Boolean);
  }

  test('bash is offered commands, pods and options', () => {
    expect(offered('').sort()).toEqual([...new Set(commandTexts.map(({ name }) => name.split(' ')[0]!))].sort());
    expect(offered('re')).toEqual(['resize']);
    expect(offered('get', '')).toEqual(['pods', 'pod']);
    expect(offered('get', 'pod', 'default/w')).toEqual(['default/web']);
    expect(offered('describe', 'pod', '')).toEqual(['default/web', 'default/db']);
    expect(offered('get', 'pods', '')).toEqual([]);
    expect(offered('resize', '--timeout', '5s', '')).toEqual(['default/web', 'default/db']);
    expect(offered('resize', 'web', '')).toEqual([]);
    expect(offered('resize', '--d')).toEqual(['--dry-run', '--defer']);
    expect(offered('get', 'pods', '--d')).toEqual([]);
    expect(offered('get', 'pods', '-o', 'j')).toEqual(['json']);
    expect(offered('completion', '')).toEqual(['bash', 'zsh', 'fish']);
  });

  test('zsh and fish know the same commands and options', () => {
    expect(completionScript('zsh')).toMatch(/^#compdef resizectl\n/);
    const fish = completionScript('fish');
    for (const { name, options } of commandTexts) {
      expect(fish).toContain(`-a '${name.split(' ').at(-1)!}'`);
      for (const { flags } of options) expect(fish).toContain(`-l ${/--([a-z-]+)/.exec(flags)![1]!}`);
    }
    expect(fish.split('\n').filter((line) => line !== '' && !line.startsWith('complete -c resizectl '))).toEqual([]);
  });
});

test('the manual page is troff without a fault, and says what --help says', () => {
  const page = manualPage();
  expect(page).toMatch(/^\.TH RESIZECTL 1 /);
  // Every line that begins with a control character is a request that there is.
  const requests = new Set([...page.matchAll(/^['.]\s*(\S+)/gm)].map(([, request]) => request));
  expect([...requests].sort()).toEqual(['B', 'BR', 'I', 'PP', 'RE', 'RS', 'SH', 'SS', 'TH', 'TP', 'br', 'fi', 'nf']);
  const plain = page
    .replaceAll(/\\f[BIR]/g, '')
    .replaceAll('\\-', '-')
    .replaceAll('\\(aq', "'")
    .replaceAll('\\&', '')
    .replaceAll('\\e', '\\');
  for (const { summary, description, options, examples } of commandTexts) {
    expect(plain.toLowerCase()).toContain(summary.toLowerCase());
    for (const text of description) expect(plain).toContain(text);
    for (const { flags, description: what } of options) expect(plain).toContain(`${flags}\n${what}`);
    for (const [line] of examples) expect(plain).toContain(`\n${line}\n`);
  }
});

test('remedies are those of docs/errors.md', () => {
  const rows = readFileSync('docs/errors.md', 'utf8').matchAll(/^\| `([A-Z_]+)` \|.*\| ([^|]*) \|$/gm);
  const documented = [...rows].map(([, reason = '', remedy = '']) => [
    reason,
    remedy.replaceAll('`', '').replace(/\[[^\]]+\]\(([^)]+)\)/g, 'docs/$1'),
  ]);
  expect({ ...remedies }).toEqual(Object.fromEntries(documented));
});
