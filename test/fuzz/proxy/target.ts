import type { Target } from '../target.ts';
import { emptyTally, inputOf, play } from './engine.ts';

/** The proxy of one connection, in memory: conversations of client, backend and local server. */
export function proxyTarget(): Target {
  const tally = emptyTally();
  return {
    name: 'proxy',
    play: (seed, index) => play(seed, index, tally),
    describe: (seed, index) => inputOf(seed, index).steps.map(({ side, bytes }) => `${side} ${bytes.toString('hex')}`),
    summary() {
      const { survived, clientErrors, backendErrors, localErrors, amended, handled } = tally;
      const errors = `${clientErrors} client, ${backendErrors} backend, ${localErrors} local`;
      return `${survived} connections survived, errors: ${errors}; ${amended} amendments, ${handled} handled calls`;
    },
    close: () => undefined,
  };
}
