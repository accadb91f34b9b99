import { existsSync, watch } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Connection } from './client/connection.ts';

/** A new socket is bound, but may not listen yet for a moment. */
const NOT_LISTENING_MS = 1;

/** Connects as soon as a server listens on the path. */
export async function connectWhenThere(path: string): Promise<Connection> {
  await appears(path);
  for (;;) {
    try {
      return await Connection.open(path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ECONNREFUSED') throw error;
      await delay(NOT_LISTENING_MS);
    }
  }
}

function appears(path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const watcher = watch(dirname(path));
    const look = (): void => {
      if (!existsSync(path)) return;
      watcher.close();
      resolve();
    };
    watcher.on('change', look);
    watcher.on('error', reject);
    look();
  });
}
