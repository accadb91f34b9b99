import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { version } from '../../config/index.ts';
import { readShipped } from '../../core/shipped/index.ts';
import {
  type Change,
  type Program,
  SERVICE,
  type Site,
  UNITS,
  UNIT_FILES,
  changeOfVersion,
  installedVersion,
  originOf,
  resizectlStartOf,
  shimEndpoint,
  readSaved,
  removing,
  startOf,
  systemctl,
  combineChanges,
  writing,
} from '../host/index.ts';
import { isBypassHeld } from './bypass.ts';
import { planCommand, removingCommand } from './command.ts';
import { type Kubelet, Refusal, keepAtShim, pointAtContainerd, runningKubelet, pointAtShim } from '../kubelet/index.ts';
import { USED_FILE, isSameSocket } from '../../endpoint/index.ts';
import { refuseOtherOwner } from './ownership.ts';
import { isInPlace, isThere, placing, removingProgram } from './program.ts';
import { isUp, restartOnRollback, starting, stopping, unitsState } from './service.ts';

/** The changes to make, and what is in place already. */
export interface Plan {
  readonly changes: readonly Change[];
  readonly already: readonly string[];
  /** What happens to the program: `upgrade 0.1.0 to 0.2.0`. Absent if it stays, or belongs to a package. */
  readonly versions?: string;
}

/** Plans the installation of the shim on a node. Changes nothing. Throws Refusal. */
export async function planInstall(site: Site): Promise<Plan> {
  if (!(await isThere(site.node.systemdFolder)))
    throw new Refusal(
      'systemd is not the init system of this node',
      'start the shim before kubelet with the init system of this node',
    );
  if (await isBypassHeld(site.unitFolder))
    throw new Refusal('the bypass was switched on by hand (resizectl bypass on)', 'run resizectl bypass off first');
  const { program: origin } = site;
  const isPackaged = await isOfPackage(site);
  const kubelet = await runningKubelet(site);
  await refuseOtherOwner(site, isPackaged ? 'package' : 'resizectl');
  const isThrough = await isSameSocket(kubelet.endpoint, site.node.listen);
  if (!isThrough) await refuseOtherRuntime(site, kubelet);

  const program = isPackaged || (await isInPlace(site)) ? [] : [placing(site)];
  const units = isPackaged ? [] : await unitChanges(site);
  const command = isPackaged ? { changes: [], already: [] } : await planCommand(site);
  const settings = await missingSettings(site);
  const state = await unitsState();
  const isNew = program.length + units.length + settings.length > 0;
  const start = isNew || !(await isUp(site.node, state)) ? [starting(site, state)] : [];
  const older = isNew && state.active.includes(SERVICE) ? [restartOnRollback(site)] : [];
  const move = isThrough ? await keepAtShim(site, kubelet) : [await pointAtShim(site, kubelet)];

  const already = [
    ...(isPackaged ? [`the program at ${originOf(origin)} and its units belong to a package`] : []),
    ...(!isPackaged && program.length === 0 ? [`the program is at ${site.to}`] : []),
    ...(!isPackaged && units.length === 0 ? [`the units are in ${site.unitFolder}`] : []),
    ...command.already,
    ...(settings.length === 0 ? [`${site.configFile} and ${site.flagsFile} exist`] : []),
    ...(start.length === 0 ? [`${UNITS.join(', ')} are enabled, and the shim is ready`] : []),
    ...(isThrough ? [`${site.node.kubeletUnit} uses ${shimEndpoint(site)}`] : []),
  ];
  const changes = [...older, ...program, ...command.changes, ...units, ...settings, ...start, ...move];
  if (program.length === 0) return { changes, already };
  return { changes, already, versions: changeOfVersion(await installedVersion(site.to), version) };
}

/** Whether a package has installed the program and the units: its folder has no units. */
const isOfPackage = async ({ program }: Site): Promise<boolean> =>
  program.kind === 'folder' && !(await isThere(join(program.folder, 'systemd')));

/** Plans the removal of the shim. The configuration and the state folder are kept. Throws Refusal. */
export async function planUninstall(site: Site): Promise<Plan> {
  const isPackaged = await isOfPackage(site);
  await refuseOtherOwner(site, isPackaged ? 'package' : 'resizectl');
  const state = await unitsState();
  // What another installation may have left here is not the package's.
  const files = isPackaged ? [] : UNIT_FILES.map((unit) => join(site.unitFolder, unit));
  const written = (await Promise.all(files.map(async (file) => ((await isThere(file)) ? [file] : [])))).flat();
  const hasProgram = !isPackaged && (await isThere(site.to));
  const isInstalled = state.active.length + state.enabled.length + written.length > 0 || hasProgram;
  const move = await moveBack(site, isInstalled);
  const stop = state.active.length + state.enabled.length > 0 ? [stopping(site, state)] : [];
  const units =
    written.length === 0 ? [] : [combineChanges(`remove ${written.join(', ')}`, written.map(removing), reload)];
  const command = isPackaged ? [] : await removingCommand(site);
  // First: otherwise the pod of the DaemonSet may take the move for a drift, and later a new shim that kubelet no longer uses it.
  const used = join(site.node.stateFolder, USED_FILE);
  const forget = (await isThere(used)) ? [removing(used)] : [];
  const program = hasProgram ? [removingProgram(site.to)] : [];
  const changes = [...forget, ...move, ...stop, ...units, ...command, ...program];
  return { changes, already: changes.length === 0 ? ['the shim is not installed'] : [] };
}

async function moveBack(site: Site, isHere: boolean): Promise<readonly Change[]> {
  try {
    return await pointAtContainerd(site, await runningKubelet(site));
  } catch (error) {
    // Without an installed shim there is nothing that kubelet could still use.
    if (error instanceof Refusal && !isHere) return [];
    throw error;
  }
}

/** Throws Refusal if the shim would use another containerd than kubelet does now: kubelet would lose sight of its pods. */
async function refuseOtherRuntime({ node, configFile }: Site, { endpoint }: Kubelet): Promise<void> {
  if (await isSameSocket(endpoint, node.containerd)) return;
  throw new Refusal(
    `kubelet uses ${endpoint}, but the shim would use unix://${node.containerd}`,
    `write "containerRuntimeEndpoint: ${endpoint}" to ${configFile}, and try again`,
  );
}

async function reload(): Promise<void> {
  await systemctl(['daemon-reload']);
}

/** Plans the units, adapted to the place of the program on this machine. */
async function unitChanges({ program, to, unitFolder }: Site): Promise<readonly Change[]> {
  const changes: Change[] = [];
  for (const unit of UNIT_FILES) {
    const text = unitText(await shippedUnit(program, unit), { program, to });
    const there = await readSaved(join(unitFolder, unit));
    if (there?.content.toString('utf8') !== text) changes.push(writing(join(unitFolder, unit), text));
  }
  if (changes.length === 0) return [];
  return [combineChanges(changes.map(({ description }) => description).join(', '), changes, reload)];
}

async function shippedUnit(program: Program, unit: string): Promise<string> {
  const path = `systemd/${unit}`;
  return program.kind === 'folder' ? readFile(join(program.folder, path), 'utf8') : readShipped(path);
}

/** Adapts a shipped unit so that it starts this program. */
export function unitText(shipped: string, { program, to }: Pick<Site, 'program' | 'to'>): string {
  return shipped
    .replace(SHIPPED_START, () => `ExecStart=${startOf(program, to)}`)
    .replace(SHIPPED_RESIZECTL, () => `ExecStart=${resizectlStartOf(program, to)}`)
    .replaceAll('/usr/local/lib/cri-resize-shim', () => to);
}

const SHIPPED_START = /^ExecStart=\/usr\/bin\/node \/usr\/local\/lib\/cri-resize-shim\/dist\/cri-resize-shim\.js/m;
const SHIPPED_RESIZECTL = /^ExecStart=\/usr\/bin\/node \/usr\/local\/lib\/cri-resize-shim\/dist\/resizectl\.js/m;

/** Plans the configuration files. Existing files are kept, unless a configuration is given. */
async function missingSettings({ configFile, configText, isConfigGiven, flagsFile }: Site): Promise<readonly Change[]> {
  const flags = `CRI_RESIZE_SHIM_FLAGS="--config ${configFile}"\n`;
  const config = (await readSaved(configFile))?.content.toString('utf8');
  const isOther = config === undefined || (isConfigGiven && config !== configText);
  return [
    ...(isOther ? [writing(configFile, configText)] : []),
    ...((await isThere(flagsFile)) ? [] : [writing(flagsFile, flags)]),
  ];
}
