/** Time without output after which a wait is reported, in milliseconds. */
const SLOW_MS = 5000;

/**
 * Reports a wait after 5 s and then every 30 s. Returns and throws as the work does.
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
