/** How long something may take without a word, in milliseconds. */
const SLOW_MS = 5000;

/**
 * Says what a command waits for, once it has waited for 5 s, and again every 30 s. Returns and throws what the work
 * does.
 * @param what completes "still waiting for ..."
 */
export async function sayingWaits<Result>(
  what: string,
  work: Promise<Result>,
  say: (line: string) => void,
  slowMs = SLOW_MS,
): Promise<Result> {
  const begun = performance.now();
  const report = (): void => {
    say(`still waiting for ${what}, for ${Math.round((performance.now() - begun) / 1000)} s`);
    timer = setTimeout(report, 6 * slowMs).unref();
  };
  let timer = setTimeout(report, slowMs).unref();
  try {
    return await work;
  } finally {
    clearTimeout(timer);
  }
}
