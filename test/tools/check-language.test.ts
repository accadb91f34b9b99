import { expect, test } from 'vitest';

const script = new URL('../../tools/check-language.mjs', import.meta.url).href;
const { findWords } = (await import(script)) as { findWords: (file: string, text: string) => string[] };

test('findWords finds words in comments and strings of code only', () => {
  const code = [
    'const wish = `made ${anew} mend`;',
    '/** Gives the size. */',
    'if (wish) anew(); else cure();',
    '// nobody',
    '// else, or else',
    "const message = 'whoever asks';",
  ];
  expect(findWords('file.ts', code.join('\n'))).toEqual([
    '1: "mend": write fix, repair, recover',
    '2: "Gives": write Returns',
    '5: "else": write otherwise',
    '6: "whoever": write anyone who, the caller',
  ]);
});

test('findWords finds words in the prose of a page, but not in code, output and quotations', () => {
  const page = [
    'Told anew.',
    '```console',
    '$ wish',
    '```',
    '    mend',
    'The `cure` of "whatever" it is.',
    '| beside |',
  ];
  expect(findWords('page.md', page.join('\n'))).toEqual([
    '1: "anew": write again',
    '1: "Told": write reported, notified, said',
    '7: "beside": write next to, in addition to, concurrently',
  ]);
});
