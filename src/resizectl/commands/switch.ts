import { Refusal, planSwitch } from '../../install/node/index.ts';
import { Exit } from '../command-table/index.ts';
import { changing, timeoutOf } from './changing.ts';
import type { Context, InstallOptions } from './context.ts';
import { configuredNode } from './this-node.ts';

const ON = 'on: the shim acts on resizes';
const OFF = 'off: the shim forwards every call unchanged, until: resizectl on (also after a reboot)';

/** `resizectl on` and `resizectl off`. Returns the exit code. */
export async function switchTo(
  isOn: boolean,
  { print, say }: Pick<Context, 'print' | 'say'>,
  options: InstallOptions,
): Promise<Exit> {
  const exit = await changing({ print, say }, options, async (signal) => {
    const node = await configuredNode({});
    if (node.uid !== 0) throw new Refusal(`running as uid ${node.uid}, not as root`, 'run the command as root');
    return planSwitch(node, { isOn, wait: { timeoutMs: timeoutOf(options.timeout), signal } });
  });
  if (exit === Exit.done && options.dryRun !== true) print(`${isOn ? ON : OFF}\n`);
  return exit;
}
