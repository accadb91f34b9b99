/** Returns `make` with its result cached: it runs once in `ms` milliseconds, however many callers there are. Failures are cached too. */
export function cached<Result>(
  make: () => Promise<Result>,
  ms: number,
  now = () => performance.now(),
): () => Promise<Result> {
  let result: Promise<Result> | undefined;
  let until = Infinity;
  return () => {
    if (result === undefined || now() >= until) {
      until = Infinity;
      result = make();
      const known = (): void => void (until = now() + ms);
      result.then(known, known);
    }
    return result;
  };
}
