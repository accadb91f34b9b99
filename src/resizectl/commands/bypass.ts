import { drain } from '../../bypass/index.ts';
import { defaultOf } from '../../config/index.ts';
import { messageOf } from '../../core/errors/index.ts';
import { bypassState, isShimActive, turnBypassOff, turnBypassOn, withLogLine } from '../../install/node/index.ts';
import { Exit } from '../command-table/index.ts';
import { UsageError } from '../output/index.ts';
import { sayingWaits } from '../waiting.ts';
import { socketPath } from '../socket.ts';
import type { Context } from './context.ts';

type Print = Pick<Context, 'print' | 'say'>;

/** How long calls may run that the bypass has begun. TimeoutStartSec= of cri-resize-shim-takeover.service is longer. */
const DRAIN_MS = 10 * 60_000;

/** `resizectl bypass on`. Returns the exit code. */
export async function bypassOn({ print, say }: Print): Promise<Exit> {
  await refuseWithout('on');
  await sayingWaits('the bypass to serve, and the shim to stop', turnBypassOn(), say);
  print('bypass on: clients reach containerd without the shim, and no resize is ordered or reclaimed for\n');
  print('the shim is stopped until: resizectl bypass off (also after a reboot)\n');
  return Exit.done;
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

/** `resizectl bypass drain`, the program of cri-resize-shim-takeover.service, which knows its exit codes. */
export async function bypassDrain({ print }: Print): Promise<Exit> {
  const { isActive, pid } = await refuseWithout('drain');
  if (!isActive || pid === 0) {
    print('the bypass is off\n');
    return Exit.done;
  }
  const listen = socketPath('--listen', defaultOf('listen'));
  const say = (line: string): void => print(`${line}\n`);
  const ending = new AbortController();
  // Until the process ends: its exit code says whether the bypass accepts clients again, and a signal after that must not replace it.
  process.on('SIGTERM', () => ending.abort());
  const options = { timeoutMs: DRAIN_MS, signal: ending.signal, isReplaced: isShimActive, say };
  const result = await drain({ procRoot: '/proc', pid, listen }, options);
  say(
    { drained: 'all clients use the shim', 'timed out': 'calls are cut off', 'not replaced': 'the shim has failed' }[
      result
    ],
  );
  return { drained: Exit.done, 'timed out': Exit.failed, 'not replaced': Exit.infeasible }[result];
}

async function refuseWithout(verb: string): ReturnType<typeof bypassState> {
  if (process.geteuid?.() !== 0) throw new UsageError(`bypass ${verb}: run the command as root`);
  const state = await bypassState();
  if (!state.isInstalled)
    throw new UsageError('no unit cri-resize-shim-bypass.service: install the shim with resizectl install');
  return state;
}
