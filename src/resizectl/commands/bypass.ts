import { type DrainResult, drain } from '../../bypass/index.ts';
import { defaultOf, Exit, messageOf } from '../../core/index.ts';
import { bypassState, isShimActive, turnBypassOff, turnBypassOn, withLogLine } from '../../install/index.ts';
import { socketPath } from '../client.ts';
import { UsageError } from '../output/failure.ts';
import { sayingWaits } from '../waiting.ts';
import type { Context } from './context.ts';
import { configuredNode } from './this-node.ts';

type Print = Pick<Context, 'print' | 'say'>;

/** How long calls may run that the bypass has begun. TimeoutStartSec= of cri-resize-shim-takeover.service is longer. */
const DRAIN_MS = 10 * 60_000;

const OUTCOMES: Readonly<Record<DrainResult, readonly [text: string, exit: Exit]>> = {
  drained: ['all clients use the shim', Exit.done],
  'timed out': ['calls are cut off', Exit.failed],
  'not replaced': ['the shim has failed', Exit.infeasible],
  interrupted: ['interrupted: the bypass still serves clients', Exit.infeasible],
};

/** `resizectl bypass on`. Returns the exit code. */
export async function bypassOn({ print, say }: Print): Promise<Exit> {
  await refuseWithout('on');
  const turning = turnBypassOn(await configuredNode({}));
  const { isOn, problem } = await sayingWaits('the bypass to serve, and the shim to stop', turning, say);
  if (!isOn) {
    print(`bypass off, as before: through it, ${problem ?? 'no runtime answers'}\n`);
    print('the shim serves again; see journalctl -u cri-resize-shim-bypass\n');
    return Exit.infeasible;
  }
  if (problem === undefined)
    print('bypass on: clients reach containerd without the shim, and no resize is ordered or reclaimed for\n');
  else print(`bypass on, but ${problem}\n`);
  print('the shim is stopped until: resizectl bypass off (also after a reboot)\n');
  return problem === undefined ? Exit.done : Exit.failed;
}

/** `resizectl bypass off`. Returns the exit code. */
export async function bypassOff({ print, say }: Print): Promise<Exit> {
  await refuseWithout('off');
  try {
    await sayingWaits('the shim to serve all clients', turnBypassOff().catch(withLogLine), say);
  } catch (error) {
    print(`bypass on, as before: ${messageOf(error)}\n`);
    return Exit.failed;
  }
  print('bypass off: the shim serves all clients\n');
  return Exit.done;
}

/**
 * `resizectl bypass drain`, the program of cri-resize-shim-takeover.service and of the image's entry point, which know
 * its exit codes. The entry point names the process and the socket of the bypass.
 */
export async function bypassDrain(
  { print }: Print,
  [named, socket = defaultOf('listen')]: readonly string[],
): Promise<Exit> {
  if (named !== undefined && !/^[1-9]\d{0,8}$/.test(named))
    throw new UsageError(`invalid process id ${JSON.stringify(named)}: expected a number`);
  const pid = named === undefined ? await pidOfUnit() : Number(named);
  if (pid === 0) {
    print('the bypass is off\n');
    return Exit.done;
  }
  const listen = socketPath('SOCKET', socket);
  const say = (line: string): void => print(`${line}\n`);
  const ending = new AbortController();
  const interrupt = new AbortController();
  // Handled until the process ends: its exit code reports whether the bypass accepts clients again, and a later signal
  // must not replace it. No signal ends the process directly: the bypass is stopped at times, and would stay stopped.
  process.on('SIGTERM', () => ending.abort());
  // systemd sends neither: a user ends the command, and the bypass is not stopped after it.
  for (const signal of ['SIGINT', 'SIGHUP'] as const) process.on(signal, () => interrupt.abort());
  const signals = { signal: ending.signal, interrupt: interrupt.signal };
  // The entry point interrupts this if the shim fails.
  const isReplaced = named === undefined ? isShimActive : () => Promise.resolve(true);
  const options = { timeoutMs: DRAIN_MS, ...signals, isReplaced, say };
  const result = await drain({ procRoot: '/proc', pid, listen }, options);
  const [text, exit] = OUTCOMES[result];
  say(text);
  return exit;
}

async function pidOfUnit(): Promise<number> {
  const { isActive, pid } = await refuseWithout('drain');
  return isActive ? pid : 0;
}

async function refuseWithout(verb: string): ReturnType<typeof bypassState> {
  if (process.geteuid?.() !== 0) throw new UsageError(`bypass ${verb}: run the command as root`);
  const state = await bypassState();
  if (!state.isInstalled)
    throw new UsageError('no unit cri-resize-shim-bypass.service: install the shim with resizectl install');
  return state;
}
