import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { commandTexts, exitTexts } from '../../src/resizectl/command-table.ts';
import { readCommandLine } from '../../src/resizectl/program.ts';
import { readWishes } from '../../src/resizectl/commands/changes.ts';

const page = readFileSync('docs/resizectl.md', 'utf8');

test('docs/resizectl.md names every command and every exit code, and no other', () => {
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

test('its command lines and wishes are taken, as are those of the README', () => {
  for (const text of [page, readFileSync('README.md', 'utf8')]) {
    const lines = [...text.matchAll(/^ {4}resizectl (.*)$/gm)].map(([, line]) => line!.trim());
    expect(lines.length).toBeGreaterThan(0);
    for (const line of lines) {
      const read = readCommandLine(line.split(' '));
      if (read.ask === 'run' && ['plan', 'resize'].includes(read.command)) readWishes(read.args.slice(1));
    }
  }
  const wishes = [...page.matchAll(/^\| (`[^|]*=.*?`) \| /gm)].flatMap(([, cell = '']) =>
    [...cell.matchAll(/`([^`]+)`/g)].map(([, wish]) => wish!),
  );
  expect(wishes.length).toBeGreaterThan(8);
  readWishes(wishes);
});
