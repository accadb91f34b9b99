import { readFileSync, readdirSync } from 'node:fs';

/** The pages whose commands are run, or have a reason why not. */
export const pages: readonly string[] = [
  'README.md',
  ...readdirSync('docs')
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
];

export interface Command {
  readonly page: string;
  /** As it stands there, lines that go on joined, without a remark after it. */
  readonly line: string;
  /** What the page says that it prints; empty where it says nothing. */
  readonly prints: readonly string[];
}

/** What a line of a block begins with, if it is a command. A page that uses another program has to have it put here. */
const programs =
  /^(?:npm|npx|node|bash|sh|sudo|kubectl|crictl|ctr|resizectl|cri-resize-shim|curl|systemctl|journalctl|docker|helm|kustomize|promtool|jq|mount|umount|ls|cat|cp|rm|mkdir|install|ln|apt-get|dpkg|git|\.\/\S+|\/\S+)(?: |$)/;

/** The commands of a page, in its order: in fences, and in blocks that are indented. */
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

/** Lines of each block of code, without what they are indented by. */
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
        // More than 4 in an item of a list.
        indent = line.search(/\S/);
      }
      current.push(line.slice(Math.min(indent, line.search(/\S/))));
    } else if (line.trim() !== '') {
      current = undefined;
    }
  }
  return blocks;
}

/** Whether a text is what the page says: `...` in a line stands for anything, alone in a line for any lines; blanks for blanks. */
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
