import { closeSync, constants, openSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { getRawAsset } from 'node:sea';

/** asm-generic/fcntl.h; with it a folder is opened, and a file without a name made there (open(2)). */
const TMPFILE = 0o20000000;

/**
 * The first that takes such a file and lets it be executed. What is in memory comes first; where all of it is mounted noexec, the state
 * folder is not.
 */
const folders: readonly string[] = ['/run', '/dev/shm', '/var/lib/cri-resize-shim', tmpdir()];

/**
 * Loads a library that is an asset of the single executable, and gives what it exports. The loader wants a file: it gets one that has
 * no name and cannot be given one (O_EXCL), so nobody else can put another in its place, and nothing is left of it when the process
 * ends. Throws when no folder will do.
 */
export function loadNativePart(asset: string): unknown {
  const faults: string[] = [];
  for (const folder of folders) {
    try {
      return loadBy(folder, asset);
    } catch (error) {
      faults.push(`${folder}: ${String(error)}`);
    }
  }
  throw new Error(`${asset} cannot be loaded from the executable: ${faults.join('; ')}`);
}

function loadBy(folder: string, asset: string): unknown {
  const content = getRawAsset(asset);
  if (typeof content === 'string') throw new Error(`${asset} is no file`);
  const flags = TMPFILE | constants.O_DIRECTORY | constants.O_RDWR | constants.O_EXCL;
  const file = openSync(folder, flags, 0o600);
  try {
    const bytes = Buffer.from(content);
    for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at);
    const library = { exports: {} as unknown };
    process.dlopen(library, `/proc/self/fd/${file}`);
    return library.exports;
  } finally {
    // Once it is mapped it stays.
    closeSync(file);
  }
}
