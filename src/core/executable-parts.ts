/** Parts of the single executable that are its assets, and are loaded on first use. */
import { closeSync, constants, openSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { getAsset, getRawAsset } from 'node:sea';
import { compileFunction } from 'node:vm';

/** Runs a script in CommonJS that is an asset of the single executable, and returns its exports. */
export function loadScriptPart(asset: string): unknown {
  const part = { exports: {} };
  const run = compileFunction(getAsset(asset, 'utf8'), ['module', 'exports', 'require'], {
    filename: asset,
  }) as (module: object, exports: object, require: (name: string) => unknown) => void;
  run(part, part.exports, requireBuiltin);
  return part.exports;
}

/** Loads modules of Node only: an optional dependency must not come from a folder near the executable. */
function requireBuiltin(name: string): unknown {
  const found: unknown = process.getBuiltinModule(name);
  if (found === undefined) throw new Error(`${name} is not part of the executable`);
  return found;
}

/** O_TMPFILE of asm-generic/fcntl.h: opening a folder creates an unnamed file in it (open(2)). */
const TMPFILE = 0o20000000;

/**
 * Candidate folders; the first that supports an unnamed file and allows execution is used. Folders in memory come
 * first; where they are mounted noexec, the state folder usually is not.
 */
const folders: readonly string[] = ['/run', '/dev/shm', '/var/lib/cri-resize-shim', tmpdir()];

/**
 * Loads a native addon that is an asset of the single executable, and returns its exports. The dynamic loader needs a
 * file. This one is unnamed and cannot be linked (O_EXCL), so that no other process can replace it and nothing remains
 * when the process ends. Throws if no folder works.
 */
export function loadNativePart(asset: string): unknown {
  const problems: string[] = [];
  for (const folder of folders) {
    try {
      return loadFrom(folder, asset);
    } catch (error) {
      problems.push(`${folder}: ${String(error)}`);
    }
  }
  throw new Error(`${asset} cannot be loaded from the executable: ${problems.join('; ')}`);
}

function loadFrom(folder: string, asset: string): unknown {
  const content = getRawAsset(asset);
  if (typeof content === 'string') throw new Error(`${asset} is not a binary asset`);
  const flags = TMPFILE | constants.O_DIRECTORY | constants.O_RDWR | constants.O_EXCL;
  const file = openSync(folder, flags, 0o600);
  try {
    const bytes = Buffer.from(content);
    for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at);
    const library = { exports: {} as unknown };
    process.dlopen(library, `/proc/self/fd/${file}`);
    return library.exports;
  } finally {
    // The mapping stays valid after the file is closed.
    closeSync(file);
  }
}
