/** Takes one line of what is going on. */
export type Progress = (line: string) => void;

export const silent: Progress = () => undefined;

/** Says that `what` starts, and how long it took: nothing that takes longer than a second goes unannounced. */
export async function timed<T>(progress: Progress, what: string, action: () => Promise<T>): Promise<T> {
  const start = performance.now();
  progress(`${what} ...`);
  const result = await action();
  progress(`${what}: done in ${((performance.now() - start) / 1000).toFixed(1)} s`);
  return result;
}
