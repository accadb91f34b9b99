/** Receives one line of progress. */
export type Progress = (line: string) => void;

export const silent: Progress = () => undefined;

/** Reports the start of `what` and its duration. Everything that takes longer than a second is announced. */
export async function timed<T>(progress: Progress, what: string, action: () => Promise<T>): Promise<T> {
  const start = performance.now();
  progress(`${what} ...`);
  const result = await action();
  progress(`${what}: done in ${((performance.now() - start) / 1000).toFixed(1)} s`);
  return result;
}
