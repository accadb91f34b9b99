import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';
import * as z from 'zod/mini';

const description = z.object({ version: z.string() });
const ANSWER_MS = 10_000;
/** As in Semantic Versioning: the text is printed, and comes from a file. */
const VERSION = /^\d+\.\d+\.\d+[\w.+-]{0,64}$/;

/** Returns the version of the program in this folder; undefined if there is none, or one that does not say. */
export async function installedVersion(to: string): Promise<string | undefined> {
  const found = (await fromDescription(to)) ?? (await fromProgram(to));
  return found !== undefined && VERSION.test(found) ? found : undefined;
}

/** The folder has a package.json. */
async function fromDescription(to: string): Promise<string | undefined> {
  try {
    return description.parse(JSON.parse(await readFile(join(to, 'package.json'), 'utf8'))).version;
  } catch {
    return undefined;
  }
}

/** The single executable has its version inside. */
async function fromProgram(to: string): Promise<string | undefined> {
  const program = join(to, 'bin/resizectl');
  if (!existsSync(program)) return undefined;
  const { stdout, failed } = await execa(program, ['--version'], {
    reject: false,
    timeout: ANSWER_MS,
    stdin: 'ignore',
  });
  return failed ? undefined : stdout.trim();
}

/** What an installation does: `install 0.2.0`, `upgrade 0.1.0 to 0.2.0`. */
export function changeOfVersion(from: string | undefined, to: string): string {
  if (from === undefined) return `install ${to}`;
  if (from === to) return `another build of ${to}`;
  return `${isNewer(to, from) ? 'upgrade' : 'downgrade'} ${from} to ${to}`;
}

/** By major, minor and patch. A version with a suffix such as `-rc.1` comes before the one without (Semantic Versioning, 11). */
function isNewer(one: string, other: string): boolean {
  const numbers = (text: string): number[] => text.split(/[-+]/, 1).join().split('.').map(Number);
  const [first, second] = [numbers(one), numbers(other)];
  for (const [index, number] of first.entries())
    if (number !== (second[index] ?? 0)) return number > (second[index] ?? 0);
  return other.includes('-') && !one.includes('-');
}
