import { ExecaError, execa } from 'execa';

/** How long systemd may take to start or stop what it is told to. */
const TAKES_MS = 180_000;

/** Runs systemctl and gives what it says. Rejects with its own words. */
export async function systemctl(args: readonly string[], timeoutMs = TAKES_MS): Promise<string> {
  const env = { LC_ALL: 'C', SYSTEMD_COLORS: '0' };
  // Detached: what interrupts us at a terminal is not to end it half way.
  const options = { timeout: timeoutMs, env, stdin: 'ignore', detached: true, cleanup: true } as const;
  try {
    return (await execa('systemctl', args, options)).stdout;
  } catch (error) {
    if (!(error instanceof ExecaError)) throw error;
    const said = String(error.stderr).trim().replaceAll('\n', ' ');
    throw new Error(said === '' ? error.shortMessage : `systemctl: ${said}`, { cause: error });
  }
}

/** What systemd says of a unit, by property; of one that is said several times, each. Rejects when it cannot be asked. */
export async function unitProperties(
  unit: string,
  names: readonly string[],
): Promise<(name: string) => readonly string[]> {
  const said = await systemctl(['show', `--property=${names.join(',')}`, '--', unit], 10_000);
  const pairs = said.split('\n').map((line) => line.split(/=(.*)/s));
  return (name) => pairs.filter(([key]) => key === name).map(([, value = '']) => value);
}
