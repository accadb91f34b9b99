import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { NodeError, messageOf } from './errors.ts';
import type { Progress } from './progress.ts';

/** What a part was made of, and the files it must still have. */
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
  /** Everything the result depends on: another key is another folder, so an old cache is never taken for a new one. */
  readonly key: string;
  /** Fills `folder`, which will be renamed to `finalFolder`. Returns the versions of what went in. */
  readonly make: (folder: string, finalFolder: string) => Promise<Record<string, string>>;
}

const stampName = 'stamp.json';

/**
 * The part's folder, made if it is not there or no longer whole. It appears by one rename, so a set-up that was cut off
 * leaves nothing behind that could be taken for a part; a second set-up at the same time waits for the first.
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

/** The part if it is in the cache and whole; nothing is made. */
export function present(cache: string, recipe: Pick<Recipe, 'name' | 'key'>): Promise<Part | undefined> {
  return check(folderOf(cache, recipe));
}

function folderOf(cache: string, recipe: Pick<Recipe, 'name' | 'key'>): string {
  const print = createHash('sha256').update(recipe.key).digest('hex').slice(0, 12);
  return join(cache, `${recipe.name}-${print}`);
}

/** Undefined when the part is missing or one of its files is gone or has another size. */
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

/** The sizes of the files that matter: those of the first two levels (programs, libraries), not each kernel module. */
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
 * Runs `action` while holding a kernel lock on `file`. flock(1) holds it for as long as its own standard input is open,
 * so the lock goes with this process however it ends.
 */
async function whileLocked<T>(file: string, progress: Progress, action: () => Promise<T>): Promise<T> {
  const holder = spawn('flock', [file, 'sh', '-c', 'echo locked; cat'], { stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = once(holder, 'close');
  const patience = setTimeout(() => progress(`waiting for another set-up that holds ${file}`), 1000);
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
