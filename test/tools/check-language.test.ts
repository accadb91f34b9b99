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
    'The waits shall draw apart, besides.',
    'It speaks for itself, shallow.',
  ];
  expect(findWords('page.md', page.join('\n'))).toEqual([
    '1: "anew": write again',
    '1: "Told": write reported, notified, said',
    '7: "beside": write next to, in addition to, concurrently',
    '8: "shall": write must, is to, will',
    '8: "besides": write in addition to, more, other than',
    '8: "draw apart": write wait for different times',
    '9: "speaks for": write stand for, be taken for',
  ]);
});

test.each(['file.sh', 'entry.pl', 'shim.service', 'shim.socket', '.ci/run', 'Dockerfile'])(
  'words are found in comments of %s, and not in its code',
  (file) => {
    const script = ['if told; then # told', '  wish="#anew"', 'else', '# anew', 'fi'];
    expect(findWords(file, script.join('\n'))).toEqual([
      '1: "told": write reported, notified, said',
      '4: "anew": write again',
    ]);
  },
);

test('the else of a script in a string is no word', () => {
  const code = ['const script = `if true', '  then echo', '  else', '  echo`;', 'const perl = "} else { print }";'];
  expect(findWords('file.ts', code.join('\n'))).toEqual([]);
  expect(findWords('file.mjs', "const text = 'or else it fails';")).toEqual(['1: "else": write otherwise']);
});

test('words that are out of use are found, and the same words in other meanings are not', () => {
  const page = ['All but for one wait for ever.', 'Thus it comes about.', 'As it came.', 'It holds up the others.'];
  expect(findWords('page.md', page.join('\n'))).toEqual([
    '1: "for ever": write forever, until ... ends',
    '1: "but for": write except',
    '2: "comes about": write occur, cause',
    '2: "Thus": write so, therefore',
    '3: "As it came": write unchanged, as received',
    '4: "holds up": write delay, block',
  ]);
  expect(findWords('page.md', 'It comes after every call, not for one, but for all, as it runs.')).toEqual([]);
});

test('a comment of more than 120 columns is found in code, and a long line of code or of a page is not', () => {
  const code = [`// ${'a'.repeat(118)}`, ` * ${'a'.repeat(117)}`, `const text = '${'a'.repeat(200)}';`];
  expect(findWords('file.ts', code.join('\n'))).toEqual(['1: comment of 121 columns: wrap it at 120']);
  expect(findWords('page.md', ` * ${'a'.repeat(200)}`)).toEqual([]);
});

test('a comment that begins with "What" or "Of" is found, and a question is not', () => {
  const code = ['/** What it has. */', '/**', ' * Of the pod.', ' */', '// What of it?', '// The rest. What it has.'];
  expect(findWords('file.ts', code.join('\n')).map((found) => found.split(':')[0])).toEqual(['1', '3']);
});
