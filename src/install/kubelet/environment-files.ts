import { type Problem, invalidTextIn, problemOf, readBytes } from '../../endpoint/index.ts';
import { expandGlob } from '../host/index.ts';

/** One file of `EnvironmentFile=`. */
export interface EnvironmentFile {
  /** The path, or a pattern that matches no file. */
  readonly file: string;
  /** With `-` before its name: systemd starts the unit without the file if it cannot read it. */
  readonly isOptional: boolean;
}

/** Returns the files of `EnvironmentFiles` in the order in which systemd reads them. An entry may be a pattern of glob(7). */
export async function environmentFilesOf(entries: readonly string[]): Promise<readonly EnvironmentFile[]> {
  const files: EnvironmentFile[] = [];
  for (const entry of entries) {
    // `/etc/default/kubelet (ignore_errors=yes)`
    const [, pattern = entry, ignores] = /^(.*) \(ignore_errors=(yes|no)\)$/s.exec(entry) ?? [];
    if (pattern === '') continue;
    const isOptional = ignores === 'yes';
    const found = await expandGlob(pattern);
    if (found.length === 0 && !isOptional) files.push({ file: pattern, isOptional });
    files.push(...found.map((file) => ({ file, isOptional })));
  }
  return files;
}

/** A file without which systemd does not start the unit, or which may say something that we cannot read. */
export interface EnvironmentProblem extends Problem {
  readonly file: string;
}

/** Reads the environment files of a unit as systemd does before a start, or returns the problem with the first one that it cannot read. */
export async function readEnvironment(entries: readonly string[]): Promise<readonly string[] | EnvironmentProblem> {
  const texts: string[] = [];
  for (const { file, isOptional } of await environmentFilesOf(entries)) {
    const read = await textOf(file);
    if (typeof read === 'string') texts.push(read);
    else if (!isOptional || read.isDenied === true) return { file, ...read };
  }
  return texts;
}

async function textOf(file: string): Promise<string | Problem> {
  try {
    const bytes = await readBytes(file, file);
    const invalid = invalidTextIn(bytes);
    return invalid === undefined ? bytes.toString('utf8') : { problem: `${file}: ${invalid} is not valid UTF-8` };
  } catch (error) {
    return problemOf(error, file);
  }
}
