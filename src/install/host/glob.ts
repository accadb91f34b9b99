import { lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';

const hasWildcard = (text: string): boolean => /[*?[]/.test(text);

/**
 * Returns the paths that a pattern stands for, as glob(3) with its default flags, which systemd uses: `*`, `?` and `[...]` match within a
 * name, and a dot at its start only if it is written. Braces have no meaning. The order is that of the bytes. A path without wildcards
 * stands for itself, whether it exists or not.
 * @param pattern an absolute path
 */
export async function expandGlob(pattern: string): Promise<readonly string[]> {
  if (!hasWildcard(pattern)) return [pattern];
  let found: readonly string[] = ['/'];
  for (const part of pattern.split('/').filter((name) => name !== ''))
    found = (await Promise.all(found.map((folder) => stepInto(folder, part)))).flat();
  return found.toSorted((one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other)));
}

async function stepInto(folder: string, part: string): Promise<readonly string[]> {
  if (!hasWildcard(part)) {
    const path = join(folder, part);
    return lstat(path).then(
      () => [path],
      () => [],
    );
  }
  const form = formOf(part);
  const names = await readdir(folder).catch(() => []);
  return names.filter((name) => form.test(name)).map((name) => join(folder, name));
}

function formOf(part: string): RegExp {
  const form = part.replaceAll(/\[(!?)(\]?[^\]]*)\]|\\?./gs, (text, not?: string, members?: string) => {
    if (members !== undefined) return `[${not === '!' ? '^' : ''}${members.replaceAll(/[\\\]^]/g, String.raw`\$&`)}]`;
    if (text === '*') return '.*';
    if (text === '?') return '.';
    return text.replace(/^\\(?=.)/s, '').replaceAll(/[$()*+.?[\\\]^{|}]/g, String.raw`\$&`);
  });
  return new RegExp(`^${part.startsWith('.') ? '' : String.raw`(?!\.)`}${form}$`, 's');
}
