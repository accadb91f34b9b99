import { constants } from 'node:os';

const signals = ['SIGTERM', 'SIGINT'] as const;
export type StopSignal = (typeof signals)[number];

/** Resolves with the first signal to stop. A second one ends the process at once, with the exit code of a shell: 128 and its number. */
export function stopSignal(): Promise<StopSignal> {
  return new Promise((resolve) => {
    let stopping = false;
    for (const signal of signals) {
      process.on(signal, () => {
        if (stopping) process.exit(128 + constants.signals[signal]);
        stopping = true;
        resolve(signal);
      });
    }
  });
}
