import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/**
 * Runs a command, if there is one, and then an interactive shell that reads its settings from a file: dash and other
 * shells take the name of that file from ENV (POSIX sh).
 */
const SCRIPT =
  'settings=$1; shift; "$@" && file=$(mktemp) && printf "%s\\n" "$settings" > "$file" && ENV=$file exec /bin/sh -i';

/**
 * Returns a command that ends in an interactive shell, which knows the built `resizectl` and `cri-resize-shim` and
 * greets with commands to try.
 * @param lines what the shell prints first
 * @param command what to run before
 */
export function greetingShell(lines: readonly string[], command: readonly string[] = []): readonly string[] {
  const settings = [
    'rm -f "$ENV"',
    'unset ENV',
    ...['resizectl', 'cri-resize-shim'].map((name) => `alias ${name}=${quoted(runs(name))}`),
    ...lines.map((line) => `printf '%s\\n' ${quoted(line)}`),
  ];
  return ['/bin/sh', '-c', SCRIPT, 'sh', settings.join('\n'), ...command];
}

/** This file is bundled into a file of dist/tools. */
const runs = (name: string): string =>
  `${quoted(process.execPath)} ${quoted(join(distFolder(dirname(fileURLToPath(import.meta.url))), `${name}.js`))}`;

const distFolder = (folder: string): string =>
  folder.endsWith('/dist/tools') ? dirname(folder) : join(folder, '../../../dist');

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;
