// npm run check, check `language`: lists words that this project does not use, with their replacements. It checks
// comments and strings of code, comments in proto and scripts, and the prose of Markdown pages, but no code, quotations
// or program output. It also lists comments that are too long.
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

/** Each word to avoid, and what to write instead. */
const words = [
  [/\bmend(?:s|ed|ing)?\b/i, 'fix, repair, recover'],
  [/\banew\b/i, 'again'],
  [/\bwish(?:es|ed)?\b/i, 'change, request'],
  [/\bfarewell\b/i, 'graceful shutdown'],
  [/\bwhoever\b/i, 'anyone who, the caller'],
  [/\bwhatever\b/i, 'any, regardless of'],
  [/\bthat which\b/i, 'what, the one that'],
  [/\bcures?\b/i, 'remedy'],
  [/\bbeside\b/i, 'next to, in addition to, concurrently'],
  [/\btold\b/i, 'reported, notified, said'],
  [/\bkeepers?\b|\b(?:the|a) kept\b|\bkept resizes?\b/i, 'store, stored'],
  [/\bbook of\b/i, 'store'],
  [/\bGives\b/, 'Returns'],
  [/\bshall\b/i, 'must, is to, will'],
  [/\bbesides\b/i, 'in addition to, more, other than'],
  [/\bdraws? apart\b/i, 'wait for different times'],
  [/\bspeaks? for\b/i, 'stand for, be taken for'],
  [/\bfor ever\b/i, 'forever, until ... ends'],
  [/\bof no use\b/i, 'useless, invalid'],
  [/\b(?:com(?:es?|ing)|came|brings?|brought) about\b/i, 'occur, cause'],
  [/\ball the same\b/i, 'nevertheless'],
  [/(?<=\w )but for\b/i, 'except'],
  [/\bthus\b/i, 'so, therefore'],
  [/\bas (?:it|they) c[ao]mes?\b/i, 'unchanged, as received'],
  [/\bwhose turn\b/i, 'that is next, that is being changed'],
  [/\bh[eo]lds? up\b/i, 'delay, block'],
  [/\b(?:do|does) not tell\b|\bnothing tells\b|\bno source tells\b/i, 'does not report, is unknown'],
  [/\b(?:go|goes|going|went|gone) past\b/i, 'bypass'],
  [/\blets? go\b/i, 'release'],
  [/\bleft alone\b|\bleaves? (?:\w+ )?alone\b/i, 'ignore, do not change'],
  [/(?<=\/\*\*\s+(?:\* )?|\/\/ )(?:What|Of) (?![^\n]*\?)/, 'what the thing is, in place of "What ..." or "Of ..."'],
  // "something else" is allowed, also across two lines of a comment, and so is `else` in a script or as a file name.
  [
    /(?!(?<=^[ \t]*)else[ \t]*$|else \{)(?<![/'"])(?<!\b(?:(?:any|some|every|no)(?:thing|body|one|where)|no one|who|what|where|how|much|little|all)[\s*/]+)\belse\b(?! \w+=)/im,
    'otherwise',
  ],
];

/** Returns the prose of a file. All other text becomes blanks, so that line numbers stay the same. */
function proseOf(file, text) {
  if (/\.m?[jt]s$/.test(file)) return proseOfCode(text);
  if (file.endsWith('.proto')) return text;
  if (/\.(?:sh|yaml|service|socket|pl)$|^\.ci\/|^Dockerfile$/.test(file))
    return text.replaceAll(/^.*?(?=(?:^|\s)#|$)/gm, blank);
  return text.replaceAll(/^```[^]*?^```$|^ {4}.*$|`[^`\n]+`|"[^"\n]+"/gm, blank).replaceAll(/\]\([^)\n]*\)/g, blank);
}

/** Returns the comments and strings of code. Comments are between the end of a token and the start of the next one. */
function proseOfCode(text) {
  const source = ts.createSourceFile('file.ts', text, ts.ScriptTarget.Latest);
  const ranges = [];
  const visit = (node) => {
    const children = node.getChildren(source).filter((child) => !ts.isJSDoc(child));
    if (children.length > 0) return children.forEach(visit);
    ranges.push([node.getFullStart(), node.getStart(source)]);
    if (ts.isStringLiteral(node) || ts.isTemplateLiteralToken(node)) ranges.push([node.getStart(source), node.end]);
  };
  visit(source);
  let prose = '';
  for (const [start, end] of ranges) prose += blank(text.slice(prose.length, start)) + text.slice(start, end);
  return prose;
}

const blank = (text) => text.replaceAll(/[^\n]/g, ' ');

/** `12: "anew": write again`, for each occurrence in a file. */
export function findWords(file, text) {
  const prose = proseOf(file, text);
  const found = words.flatMap(([pattern, instead]) =>
    [...prose.matchAll(new RegExp(pattern, `${pattern.flags}g`))].map(({ 0: word, index }) => ({
      line: prose.slice(0, index).split('\n').length,
      text: `"${word}": write ${instead}`,
    })),
  );
  const hints = found.sort((a, b) => a.line - b.line).map(({ line, text: hint }) => `${line}: ${hint}`);
  return [...hints, ...findLongComments(file, text)];
}

/** Returns comments of code that are longer than the line limit, as `12: ...`. */
function findLongComments(file, text) {
  if (!/\.m?[jt]s$/.test(file)) return [];
  return text
    .split('\n')
    .flatMap((line, index) =>
      /^\s*(?:\/\/|\/\*|\* )/.test(line) && line.length > LONGEST_COMMENT
        ? [`${index + 1}: comment of ${line.length} columns: wrap it at 120`]
        : [],
    );
}

const LONGEST_COMMENT = 120;

/** Files that contain the words themselves. */
const own = ['tools/check-language.mjs', 'test/tools/check-language.test.ts'];

function main() {
  const root = join(dirname(fileURLToPath(import.meta.url)), '..');
  const below = (folder) =>
    readdirSync(join(root, folder), { recursive: true })
      .map((name) => `${folder}/${name}`)
      .filter((name) => /\.(?:m?[jt]s|proto|md|sh|yaml|service|socket|pl)$|^\.ci\/run$/.test(name));
  const pages = readdirSync(root).filter((name) => name.endsWith('.md') || name === 'Dockerfile');
  const folders = [
    '.ci',
    'bench',
    'container',
    'demo',
    'deploy',
    'docs',
    'proto',
    'src',
    'systemd',
    'test',
    'tools',
  ].flatMap(below);
  const counts = new Map();
  for (const file of [...pages, ...folders].filter((name) => !own.includes(name)).sort()) {
    const found = findWords(file, readFileSync(join(root, file), 'utf8'));
    for (const line of found) process.stdout.write(`${file}:${line}\n`);
    const folder = file.split('/').slice(0, 2).join('/');
    if (found.length > 0) counts.set(folder, (counts.get(folder) ?? 0) + found.length);
  }
  for (const [folder, count] of counts) process.stdout.write(`language: ${folder}: ${count}\n`);
  const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
  process.stdout.write(`language: ${total} places to change\n`);
  process.exitCode = total === 0 ? 0 : 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main();
