import { SharedCall } from '../core/index.ts';

/**
 * Returns `make` with its result cached: it runs once in `ms` milliseconds, however many callers there are. Failures
 * are cached too. Its signal aborts when all callers that wait for it have left.
 */
export function cached<Result>(
  make: (signal: AbortSignal) => Promise<Result>,
  ms: number,
  now = () => performance.now(),
): (signal?: AbortSignal) => Promise<Result> {
  let last: Promise<Result> | undefined;
  let until = -Infinity;
  const shared = new SharedCall((signal) => {
    const making = make(signal);
    const known = (): void => {
      if (!signal.aborted) [last, until] = [making, now() + ms];
    };
    making.then(known, known);
    return making;
  });
  return (signal) => (last !== undefined && now() < until ? last : shared.run(signal));
}
