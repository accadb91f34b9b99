import { expect, test } from 'vitest';
import { commandTexts } from '../../../src/resizectl/command-table.ts';
import { manualPage } from '../../../src/resizectl/output/manual.ts';

test('the manual page is valid troff, and has all texts of --help', () => {
  const page = manualPage();
  expect(page).toMatch(/^\.TH RESIZECTL 1 /);
  // Every line that starts with a control character has to be a known request.
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
