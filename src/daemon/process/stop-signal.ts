import { constants } from 'node:os';
import { endBySignal } from './process-end.ts';

const signals = ['SIGTERM', 'SIGINT'] as const;
export type StopSignal = (typeof signals)[number];

/** Resolves with the first stop signal. A second signal ends the process immediately: a shell reports it as 128 plus its number. */
export function stopSignal(): Promise<StopSignal> {
  return new Promise((resolve) => {
    let stopping = false;
    for (const signal of signals) {
      process.on(signal, () => {
        if (stopping) endBySignal({ exitCode: 128 + constants.signals[signal], signal });
        stopping = true;
        resolve(signal);
      });
    }
  });
}
