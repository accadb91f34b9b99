import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { commandTexts } from '../../src/resizectl/command-table.ts';
import { exitTexts } from '../../src/resizectl/command-texts.ts';
import { parseCommandLine } from '../../src/resizectl/program.ts';
import { parseChanges } from '../../src/resizectl/commands/changes.ts';

const page = readFileSync('docs/resizectl.md', 'utf8');

test('docs/resizectl.md names all commands and exit codes, and no others', () => {
  const named = [...page.matchAll(/^\| (`[a-z].*?`) \| /gm)].flatMap(([, names = '']) =>
    [...names.matchAll(/`([^`]+)`/g)].map(([, name]) => name),
  );
  const forms = commandTexts.map(({ name, arguments: args }) =>
    [name, ...args.map(({ form }) => form.replace(/[<>]/g, ''))].join(' '),
  );
  expect(named.filter((name) => !name!.includes('=')).sort()).toEqual(forms.sort());
  const codes = [...page.matchAll(/^\| (\d) \| (.*) \|$/gm)].map(([, code, meaning]) => [Number(code), meaning]);
  expect(codes).toEqual(exitTexts.map((text) => [...text]));
});

test('the command lines and changes in docs/resizectl.md and README.md are valid', () => {
  for (const text of [page, readFileSync('README.md', 'utf8')]) {
    const lines = [...text.matchAll(/^ {4}resizectl (.*)$/gm)].map(([, line]) => line!.trim());
    expect(lines.length).toBeGreaterThan(0);
    for (const line of lines) {
      const read = parseCommandLine(line.replace(/ \|.*$/, '').split(' '));
      if (read.ask === 'run' && ['plan', 'resize'].includes(read.command)) parseChanges(read.args.slice(1));
    }
  }
  const changes = [...page.matchAll(/^\| (`[^|]*=.*?`) \| /gm)].flatMap(([, cell = '']) =>
    [...cell.matchAll(/`([^`]+)`/g)].map(([, change]) => change!),
  );
  expect(changes.length).toBeGreaterThan(8);
  parseChanges(changes);
});
