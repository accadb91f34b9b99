import { readdirSync, readFileSync } from 'node:fs';

/** The pages whose commands a test runs, unless proved.ts has a reason. */
export const pages: readonly string[] = [
  'README.md',
  ...readdirSync('docs')
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
];

export interface Command {
  readonly page: string;
  /** The text on the page, with continued lines joined and without a trailing comment. */
  readonly line: string;
  /** The output that the page shows; empty if it shows none. */
  readonly prints: readonly string[];
}

/** The programs with which a command begins. Add the program here when a page uses another one. */
const programs =
  /^(?:npm|npx|node|bash|sh|sudo|kubectl|crictl|ctr|resizectl|cri-resize-shim|curl|systemctl|journalctl|docker|helm|kustomize|promtool|jq|mount|umount|ls|cat|cp|rm|mkdir|install|ln|apt-get|dpkg|git|\.\/\S+|\/\S+)(?: |$)/;

/** Returns the commands of a page in order, from fenced and from indented blocks. */
export function commandsOf(page: string): Command[] {
  const commands: Command[] = [];
  for (const block of blocksOf(readFileSync(page, 'utf8'))) {
    const isConsole = block.some((line) => line.startsWith('$ '));
    let last: { line: string; prints: string[] } | undefined;
    for (const line of block) {
      if (last !== undefined && /(?:\\|\|)$/.test(last.line)) {
        last.line = `${last.line.replace(/\\$/, '')}${line.trim()}`;
      } else if (line.startsWith('$ ') || (!isConsole && programs.test(line))) {
        last = { line: line.replace(/^\$ /, '').replace(/ {2,}# .*$/, ''), prints: [] };
        commands.push({ page, ...last });
      } else if (isConsole && last !== undefined) {
        last.prints.push(line);
      }
      if (last !== undefined) commands[commands.length - 1] = { page, ...last };
    }
  }
  return commands;
}

/** Returns the lines of each code block, without their indentation. */
function blocksOf(text: string): string[][] {
  const blocks: string[][] = [];
  let current: string[] | undefined;
  let indent = 0;
  let fence = false;
  for (const line of text.split('\n')) {
    if (line.startsWith('```')) {
      fence = !fence;
      current = fence ? [] : undefined;
      if (current !== undefined) blocks.push(current);
    } else if (fence) {
      current?.push(line);
    } else if (line.startsWith('    ')) {
      if (current === undefined) {
        blocks.push((current = []));
        // An indented block in a list item has more than 4 blanks.
        indent = line.search(/\S/);
      }
      current.push(line.slice(Math.min(indent, line.search(/\S/))));
    } else if (line.trim() !== '') {
      current = undefined;
    }
  }
  return blocks;
}

/** Whether a text matches the page. `...` matches any text in a line, alone any lines. Blanks match any blanks. */
export function isAsPrinted(prints: readonly string[], text: string): boolean {
  const lines = prints.map((line) =>
    line.trim() === '...' ? '(?:.*\\n)*?' : `[ ]*${line.trim().split('...').map(escaped).join('.*')}[ ]*\\n`,
  );
  return new RegExp(`^${lines.join('')}$`).test(`${text.replace(/\n*$/, '')}\n`);
}

const escaped = (text: string): string =>
  text
    .split(/\s+/)
    .map((word) => word.replaceAll(/[\\^$.*+?()[\]{}|]/g, '\\$&'))
    .join('\\s+');
