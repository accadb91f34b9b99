import { open } from 'node:fs/promises';

/** Writes the content of a file to the disk. */
export async function syncFile(path: string): Promise<void> {
  const file = await open(path, 'r');
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Writes the names in a folder to the disk: the fsync of a file does not (fsync(2)). */
export const syncFolder = syncFile;
