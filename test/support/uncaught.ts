import { onTestFinished } from 'vitest';

/** Returns the list that collects the running test's uncaught errors, which would otherwise end a process. */
export function collectUncaught(): unknown[] {
  const errors: unknown[] = [];
  const others = process.listeners('uncaughtException');
  process.removeAllListeners('uncaughtException').on('uncaughtException', (error) => errors.push(error));
  onTestFinished(() => {
    process.removeAllListeners('uncaughtException');
    for (const other of others) process.on('uncaughtException', other);
  });
  return errors;
}
