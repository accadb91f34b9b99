import { readFile } from 'node:fs/promises';
import { ConfigError, effectiveSettings, messageOf, settingsIn } from '../../core/index.ts';
import type { Change } from '../host/change.ts';
import { readSaved, writing } from '../host/files.ts';
import { queryShim } from '../host/query-runtime.ts';
import { type Node, SERVICE } from '../host/site.ts';
import { serviceFlags, systemctl, type Wait, waitUntil } from '../host/systemd.ts';
import { withKey } from '../host/yaml-key.ts';
import { Refusal } from '../kubelet/setting.ts';
import { isBypassHeld, isShimActive } from './bypass.ts';
import type { Plan } from './install.ts';
import { leaveShim, type UnitsState, unitsState, withLogLine } from './service.ts';

export interface SwitchOptions {
  /** Whether the shim is to act on resizes. */
  readonly isOn: boolean;
  readonly wait: Wait;
  readonly unitFolder?: string;
}

/**
 * Plans to set `intercept` in the configuration file of the service, and to restart it. systemd keeps the sockets, so
 * clients stay connected to a runtime. Changes nothing. Throws Refusal.
 */
export async function planSwitch(node: Node, { isOn, wait, unitFolder }: SwitchOptions): Promise<Plan> {
  if (await isBypassHeld(unitFolder))
    throw new Refusal('the bypass was switched on by hand (resizectl bypass on)', 'run resizectl bypass off first');
  const file = await fileOf(node);
  const text = await readFile(file, 'utf8');
  const { settings } = await settingsIn(text, file);
  const changed = (settings.intercept ?? true) === isOn ? text : withKey(text, 'intercept', isOn);
  if (changed === undefined)
    throw new Refusal(
      `${file}: intercept cannot be changed without other changes`,
      `set "intercept: ${isOn}" there, then: systemctl restart ${SERVICE}`,
    );
  const before = await isActing(node).catch(() => undefined);
  const isSet = changed === text;
  if (isSet && before === isOn)
    return { changes: [], already: [`${file} has intercept: ${isOn}, and the shim runs so`] };
  const write = isSet ? [] : [writing(file, changed)];
  const [state, wasServing] = [await unitsState(), await isShimActive()];
  return { changes: [switching(node, { write, isOn, before, state, wasServing, wait })], already: [] };
}

/** Returns the configuration file of the service. Throws Refusal if a change of it would have no effect. */
async function fileOf({ flagsFile }: Node): Promise<string> {
  try {
    const { configFile, settings } = await effectiveSettings(await serviceFlags(flagsFile));
    if (settings.some(({ key, from }) => key === 'intercept' && from === 'flag'))
      throw new Refusal(
        `${flagsFile} has the flag --intercept, which takes precedence over the configuration file`,
        `remove the flag, and try again`,
      );
    if (configFile !== undefined) return configFile;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw new Refusal(error.problems.join('; '), 'correct the configuration, and try again');
  }
  if ((await readSaved(flagsFile)) === undefined)
    throw new Refusal('cri-resize-shim is not installed on this node', 'run resizectl install');
  throw new Refusal(
    `the service has no configuration file: ${flagsFile} has no --config`,
    `add --config FILE to CRI_RESIZE_SHIM_FLAGS in ${flagsFile}, and try again`,
  );
}

/** Whether the shim acts on resizes. Rejects if no shim answers. */
async function isActing({ listen }: Node): Promise<boolean> {
  const shim = await queryShim(listen);
  if (shim === undefined) throw new Error(`${listen} is not served by a shim of this version`);
  return shim.passThrough === undefined;
}

interface Switching {
  readonly write: readonly Change[];
  readonly isOn: boolean;
  /** Whether the shim acted on resizes; undefined if no shim answered. */
  readonly before: boolean | undefined;
  readonly state: UnitsState;
  /** Whether the service was active. */
  readonly wasServing: boolean;
  readonly wait: Wait;
}

function switching(node: Node, { write, isOn, before, state, wasServing, wait }: Switching): Change {
  let isRestarted = false;
  const restart = async (expected: boolean | undefined, limits: Wait): Promise<void> => {
    isRestarted = true;
    await systemctl(['restart', '--', SERVICE], limits.timeoutMs).catch(withLogLine);
    if (expected !== undefined) await waitUntil(limits, () => missingOf(node, expected));
  };
  const [first] = write;
  const written = first === undefined ? '' : `${first.description} (intercept: ${isOn}), and `;
  return {
    description: `${written}restart ${SERVICE}`,
    probe: async () => first?.probe?.(),
    async do() {
      await first?.do();
      await restart(isOn, wait);
    },
    async undo() {
      await first?.undo();
      if (!isRestarted) return;
      if (!wasServing) return leaveShim(node, state);
      // A rollback is not interrupted.
      await restart(before, { ...wait, signal: new AbortController().signal });
    },
  };
}

async function missingOf(node: Node, isOn: boolean): Promise<string | undefined> {
  try {
    if ((await isActing(node)) === isOn) return undefined;
    return `the shim ${isOn ? 'forwards every call' : 'acts on resizes'}: see resizectl config show`;
  } catch (error) {
    return `${node.listen} does not answer: ${messageOf(error)}, see journalctl -u ${SERVICE}`;
  }
}
