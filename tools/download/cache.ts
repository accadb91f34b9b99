import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { messageOf, NodeError } from './errors.ts';
import type { Progress } from './progress.ts';

/** The inputs of a part, and the files that it must have. */
export interface Stamp {
  readonly versions: Readonly<Record<string, string>>;
  readonly files: Readonly<Record<string, number>>;
}

export interface Part {
  readonly folder: string;
  readonly versions: Readonly<Record<string, string>>;
}

export interface Recipe {
  readonly name: string;
  /**
   * Everything that the result depends on. Another key is another folder, so that an old cache is never used for a new
   * part.
   */
  readonly key: string;
  /** Fills `folder`, which will be renamed to `finalFolder`. Returns the versions of the inputs. */
  readonly make: (folder: string, finalFolder: string) => Promise<Record<string, string>>;
}

const stampName = 'stamp.json';

/**
 * Returns the part's folder, and creates it if it does not exist or is incomplete. It appears by one rename, so that an
 * interrupted setup leaves nothing that looks like a part. A concurrent setup waits for the first one.
 */
export async function obtain(cache: string, recipe: Recipe, progress: Progress): Promise<Part> {
  const folder = folderOf(cache, recipe);
  const present = await check(folder);
  if (present) return present;
  await mkdir(cache, { recursive: true });
  return whileLocked(join(cache, `${recipe.name}.lock`), progress, async () => {
    const madeMeanwhile = await check(folder);
    if (madeMeanwhile) return madeMeanwhile;
    const draft = await mkdtemp(join(cache, `${recipe.name}.draft-`));
    try {
      const versions = await recipe.make(draft, folder);
      const stamp: Stamp = { versions, files: await sizes(draft) };
      await writeFile(join(draft, stampName), JSON.stringify(stamp, null, 2));
      await rm(folder, { recursive: true, force: true });
      await rename(draft, folder);
      return { folder, versions };
    } finally {
      await rm(draft, { recursive: true, force: true });
    }
  });
}

/** Returns the part if it is complete in the cache, and never creates it. */
export function present(cache: string, recipe: Pick<Recipe, 'name' | 'key'>): Promise<Part | undefined> {
  return check(folderOf(cache, recipe));
}

function folderOf(cache: string, recipe: Pick<Recipe, 'name' | 'key'>): string {
  const print = createHash('sha256').update(recipe.key).digest('hex').slice(0, 12);
  return join(cache, `${recipe.name}-${print}`);
}

/** Returns undefined if the part does not exist, or if one of its files is missing or has another size. */
async function check(folder: string): Promise<Part | undefined> {
  try {
    const stamp = JSON.parse(await readFile(join(folder, stampName), 'utf8')) as Stamp;
    for (const [file, size] of Object.entries(stamp.files)) {
      if ((await stat(join(folder, file))).size !== size) return undefined;
    }
    return { folder, versions: stamp.versions };
  } catch {
    return undefined;
  }
}

/**
 * Returns the sizes of the relevant files: those of the first two levels (programs, libraries), not every kernel
 * module.
 */
async function sizes(folder: string): Promise<Record<string, number>> {
  const result: Record<string, number> = {};
  const visit = async (path: string, depth: number): Promise<void> => {
    for (const entry of await readdir(path, { withFileTypes: true })) {
      const child = join(path, entry.name);
      if (entry.isDirectory() && depth > 0) await visit(child, depth - 1);
      else if (entry.isFile()) result[relative(folder, child)] = (await stat(child)).size;
    }
  };
  await visit(folder, 1);
  return result;
}

/**
 * Runs `action` with a kernel lock on `file`. flock(1) holds the lock while its standard input is open, so the lock
 * ends with this process in any case.
 */
async function whileLocked<T>(file: string, progress: Progress, action: () => Promise<T>): Promise<T> {
  const holder = spawn('flock', [file, 'sh', '-c', 'echo locked; cat'], { stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = once(holder, 'close');
  const patience = setTimeout(() => progress(`waiting for another setup that holds ${file}`), 1000);
  try {
    await Promise.race([
      once(holder.stdout, 'data'),
      ended.then(([code]) => {
        throw new NodeError(`cannot lock ${file}: flock exited with code ${String(code)}`);
      }),
    ]);
  } catch (error) {
    ended.catch(() => undefined);
    if (error instanceof NodeError) throw error;
    throw new NodeError(`cannot lock ${file}: ${messageOf(error)}; install the package util-linux (it has flock)`);
  } finally {
    clearTimeout(patience);
  }
  try {
    return await action();
  } finally {
    holder.stdin.end();
    await ended;
  }
}
