import { ExecaError, execa } from 'execa';

/** Maximum time of a start or stop, in milliseconds. */
const TIMEOUT_MS = 180_000;

/** Runs systemctl and returns its output. Rejects with its error output. */
export async function systemctl(args: readonly string[], timeoutMs = TIMEOUT_MS): Promise<string> {
  const env = { LC_ALL: 'C', SYSTEMD_COLORS: '0' };
  // Detached: Ctrl-C in a terminal must not end systemctl half way.
  const options = { timeout: timeoutMs, env, stdin: 'ignore', detached: true, cleanup: true } as const;
  try {
    return (await execa('systemctl', args, options)).stdout;
  } catch (error) {
    if (!(error instanceof ExecaError)) throw error;
    const output = String(error.stderr).trim().replaceAll('\n', ' ');
    throw new Error(output === '' ? error.shortMessage : `systemctl: ${output}`, { cause: error });
  }
}

/** Returns the values of unit properties; a property may have several. Rejects if systemd does not answer. */
export async function unitProperties(
  unit: string,
  names: readonly string[],
): Promise<(name: string) => readonly string[]> {
  const output = await systemctl(['show', `--property=${names.join(',')}`, '--', unit], 10_000);
  const pairs = output.split('\n').map((line) => line.split(/=(.*)/s));
  return (name) => pairs.filter(([key]) => key === name).map(([, value = '']) => value);
}

/** Stops that are tried: the fallback starts a shim that fails at once three times, then with pauses. */
const MOST_STOPS = 5;

/**
 * Stops units. The fallback of the bypass starts a shim that fails, and systemd cancels the stop of a unit that something starts. Such a
 * stop is repeated.
 * @param afterEach runs after each stop, and before it is repeated
 */
export async function stopUnits(units: readonly string[], afterEach?: () => Promise<void>): Promise<void> {
  for (let stops = 1; ; stops += 1) {
    const canceled = await systemctl(['stop', '--', ...units]).then(() => undefined, canceledOf);
    await afterEach?.();
    if (canceled === undefined) return;
    if (stops === MOST_STOPS) throw canceled;
  }
}

/** Returns the error of a stop that systemd has canceled for a start. Throws any other. */
function canceledOf(error: unknown): Error {
  if (error instanceof Error && / canceled\.?$/m.test(error.message)) return error;
  throw error;
}
