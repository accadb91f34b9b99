/** Tables that commands write into pages of docs/. */

/** Returns rows as a Markdown table. The first row is the head. */
export function markdownTable([head = [], ...rows]: readonly (readonly string[])[]): string {
  return [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

/** Returns the page with this text between the marks of a command. Throws if the page does not have them. */
export function withTable(page: string, command: string, text: string): string {
  const [begin, end] = [`<!-- ${command}: begin -->`, `<!-- ${command}: end -->`];
  const [from, to] = [page.indexOf(begin), page.indexOf(end)];
  if (from < 0 || to < from) throw new Error(`the page lacks the marks ${begin} and ${end}`);
  return `${page.slice(0, from + begin.length)}\n\n${text}\n\n${page.slice(to)}`;
}
