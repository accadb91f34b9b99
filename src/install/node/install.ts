import { readFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { readShipped, version } from '../../core/index.ts';
import { isSameSocket, USED_FILE } from '../../kubelet/endpoint/paths.ts';
import { type Change, combineChanges } from '../host/change.ts';
import { readSaved, removing, writing } from '../host/files.ts';
import { originOf, type Program, resizectlOf, resizectlStartOf, startOf, unitWord } from '../host/programs.ts';
import { planKubeconfig, removingKubeconfig } from '../host/provided-kubeconfig.ts';
import { SERVICE, type Site, SOCKETS, shimEndpoint, UNIT_FILES, UNITS } from '../host/site.ts';
import { systemctl, unitPlaces, withServiceFlags } from '../host/systemd.ts';
import { keepAtShim, pointAtContainerd, pointAtShim, runningKubelet, stoppedAtShim } from '../kubelet/change.ts';
import type { Kubelet } from '../kubelet/kubelet.ts';
import { Refusal } from '../kubelet/setting.ts';
import { isBypassHeld } from './bypass.ts';
import {
  changeOfVersion,
  checkSpace,
  installedVersion,
  isInPlace,
  isThere,
  placing,
  refuseOtherOwner,
  removingProgram,
} from './program.ts';
import {
  isServedWithout,
  isUp,
  restartOnRollback,
  retryOnRollback,
  starting,
  stopping,
  type UnitsState,
  unitsState,
} from './service.ts';
import { linesBack, nextStart } from './way-back.ts';

/** The changes to make, and the parts that are already in place. */
export interface Plan {
  readonly changes: readonly Change[];
  readonly already: readonly string[];
  /** The change of the program: `upgrade 0.1.0 to 0.2.0`. Absent if it stays, or belongs to a package. */
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
  await refuseOtherPlaces(site);
  const isThrough = await isSameSocket(kubelet.endpoint, site.node.listen);
  if (!isThrough) await refuseOtherRuntime(site, kubelet);

  const program = isPackaged || (await isInPlace(site)) ? [] : [placing(site)];
  if (program.length > 0) await refuseWithoutSpace(site.node);
  const units = isPackaged ? [] : await unitChanges(site);
  const command = isPackaged ? { changes: [], already: [] } : await planCommand(site);
  const settings = await missingSettings(site);
  const kubeconfig = await planKubeconfig(site.kubeconfig, site.isConfigGiven);
  const state = await unitsState();
  const isNew = program.length + units.length + settings.length > 0;
  const start = isNew || !(await isUp(site.node, state)) ? [starting(site, state)] : [];
  const older = recordShim(site, state, isNew);
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
  const started = [...older, ...program, ...command.changes, ...units, ...settings, ...kubeconfig.before, ...start];
  const changes = [...started, ...move, ...kubeconfig.after];
  if (program.length === 0) return { changes, already };
  return { changes, already, versions: changeOfVersion(await installedVersion(site.to), version) };
}

/** Plans how a rollback restarts the existing shim, after its files are restored. */
function recordShim(site: Site, state: UnitsState, isNew: boolean): readonly Change[] {
  if (state.hasFailed && isServedWithout(state)) return [retryOnRollback()];
  return isNew && state.active.includes(SERVICE) ? [restartOnRollback(site)] : [];
}

/** Whether a package has installed the program and the units: its folder has no units. */
const isOfPackage = async ({ program }: Site): Promise<boolean> =>
  program.kind === 'folder' && !(await isThere(join(program.folder, 'systemd')));

/** Plans the removal of the shim. The configuration and the state folder are kept. Throws Refusal. */
export async function planUninstall(site: Site): Promise<Plan> {
  const isPackaged = await isOfPackage(site);
  await refuseOtherOwner(site, isPackaged ? 'package' : 'resizectl');
  const state = await unitsState();
  // Files that another installation may have left here are not the package's.
  const files = isPackaged ? [] : UNIT_FILES.map((unit) => join(site.unitFolder, unit));
  const written = (await Promise.all(files.map(async (file) => ((await isThere(file)) ? [file] : [])))).flat();
  const hasProgram = !isPackaged && (await isThere(site.to));
  const isInstalled = state.active.length + state.enabled.length + written.length > 0 || hasProgram;
  const move = await moveBack(site, isInstalled);
  const stop = state.active.length + state.enabled.length > 0 ? [stopping(site, state)] : [];
  const units =
    written.length === 0 ? [] : [combineChanges(`remove ${written.join(', ')}`, written.map(removing), reload)];
  const command = isPackaged ? [] : await removingCommand(site);
  // First, so that the DaemonSet's pod neither takes the move for a drift, nor reports a later shim as unused by
  // kubelet.
  const used = join(site.node.stateFolder, USED_FILE);
  const forget = (await isThere(used)) ? [removing(used)] : [];
  const program = hasProgram ? [removingProgram(site.to)] : [];
  const kubeconfig = isPackaged ? [] : await removingKubeconfig(site.kubeconfig);
  const changes = [...forget, ...move, ...stop, ...units, ...command, ...program, ...kubeconfig];
  return { changes, already: changes.length === 0 ? ['the shim is not installed'] : [] };
}

async function moveBack(site: Site, isHere: boolean): Promise<readonly Change[]> {
  try {
    return await pointAtContainerd(site, await runningKubelet(site));
  } catch (error) {
    // Without an installed shim kubelet cannot use it, unless kubelet's next start is to use the shim: a package's
    // units may be stopped and disabled.
    if (!(error instanceof Refusal)) throw error;
    if (!isHere && (await stoppedAtShim(site.node)) === undefined) return [];
    const { isFree, byHand } = await nextStart(site.node);
    if (isFree) return [];
    if (byHand === undefined) throw error;
    throw new Refusal(error.message, `${error.remedy}; or, if it is to stay stopped, ${byHand}`);
  }
}

/** Throws Refusal if the shim would use another containerd than kubelet, which would lose sight of its pods. */
async function refuseOtherRuntime({ node, configFile, flagsFile }: Site, { endpoint }: Kubelet): Promise<void> {
  if (await isSameSocket(endpoint, node.containerd)) return;
  throw new Refusal(
    `kubelet uses ${endpoint}, but the shim would use unix://${node.containerd}`,
    `set containerRuntimeEndpoint: ${endpoint} in ${configFile}, or in ${flagsFile} if it has that flag, and try again`,
  );
}

/**
 * Throws Refusal if the configuration has a socket that the units do not serve, or a state folder that they do not let
 * the shim write to: it would not become ready.
 */
async function refuseOtherPlaces({ node: { listen, stateFolder }, unitFolder }: Site): Promise<void> {
  const { sockets, writable } = await unitPlaces(unitFolder);
  const [unit = ''] = SOCKETS;
  const are = await Promise.all(sockets.map((socket) => isSameSocket(socket, listen)));
  if (!are.includes(true))
    throw new Refusal(
      `listen is unix://${listen}, but ${unit} serves ${sockets.map((socket) => `unix://${socket}`).join(', ')}`,
      `remove listen from the configuration, or set ListenStream=${listen} in a drop-in of ${unit} (docs/units.md)`,
    );
  if (writable.some((folder) => isWithin(stateFolder, folder))) return;
  throw new Refusal(
    `stateFolder is ${stateFolder}, to which ${SERVICE} may not write`,
    `remove stateFolder from the configuration, or set ReadWritePaths=${stateFolder} in a drop-in of ${SERVICE} (docs/units.md)`,
  );
}

/** Whether a path is a folder or in it. */
const isWithin = (path: string, folder: string): boolean => !relative(folder, path).startsWith('..');

/** Throws Refusal if the program does not fit on the disk. */
async function refuseWithoutSpace({ programFolder, programSpace }: Site['node']): Promise<void> {
  const { result, found, remedy } = await checkSpace('program room', programFolder, programSpace);
  if (result === 'failed') throw new Refusal(found, remedy);
}

async function reload(): Promise<void> {
  await systemctl(['daemon-reload']);
}

/** Plans the units, adapted to the place of the program on this machine. */
async function unitChanges({ program, to, node, unitFolder }: Site): Promise<readonly Change[]> {
  const changes: Change[] = [];
  for (const unit of UNIT_FILES) {
    const text = unitText(await shippedUnit(program, unit), { program, to, node });
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

interface UnitPlace extends Pick<Site, 'program' | 'to'> {
  readonly node: Pick<Site['node'], 'containerd'>;
}

/** Adapts a shipped unit to start this program, and so that a bypass without target file finds containerd. */
export function unitText(shipped: string, { program, to, node: { containerd } }: UnitPlace): string {
  return shipped
    .replace(SHIPPED_START, () => `ExecStart=${startOf(program, to)}`)
    .replace(SHIPPED_RESIZECTL, () => `ExecStart=${resizectlStartOf(program, to)}`)
    .replace(SHIPPED_TARGET, (_, name: string) => `Environment=${unitWord(`${name}=${containerd}`)}`)
    .replaceAll('/usr/local/lib/cri-resize-shim', () => to);
}

const SHIPPED_TARGET = /^Environment=(CRI_RESIZE_SHIM_BYPASS_TO)=.*$/m;
const SHIPPED_START =
  /^ExecStart=\/usr\/bin\/env \/usr\/bin\/node \/usr\/local\/lib\/cri-resize-shim\/dist\/cri-resize-shim\.js/m;
const SHIPPED_RESIZECTL =
  /^ExecStart=\/usr\/bin\/env \/usr\/bin\/node \/usr\/local\/lib\/cri-resize-shim\/dist\/resizectl\.js/m;

/** Plans the configuration files. Existing files are kept, unless a configuration is given. */
async function missingSettings(site: Site): Promise<readonly Change[]> {
  const { configFile, configText, isConfigGiven, flagsFile, runtimeFlags } = site;
  const present = (await readSaved(flagsFile))?.content.toString('utf8');
  const flags = withServiceFlags(
    present,
    present === undefined ? ['--config', configFile, ...runtimeFlags] : runtimeFlags,
  );
  const config = (await readSaved(configFile))?.content.toString('utf8');
  const isOther = config === undefined || (isConfigGiven && config !== configText);
  return [
    ...(isOther ? [writing(configFile, configText)] : []),
    ...(flags === present ? [] : [writing(flagsFile, flags)]),
  ];
}

/** Marks the file as ours. A file without this line belongs to another program and is not removed. */
const OURS = '# Part of cri-resize-shim: "resizectl uninstall" takes it away.';

/** The changes that add resizectl to PATH, or the reason why there are none. */
export interface CommandPlan {
  readonly changes: readonly Change[];
  readonly already: readonly string[];
}

/** Plans a shell script in PATH that runs the installed resizectl. A symbolic link would need Node in PATH too. */
export async function planCommand({ program, to, node, commandFile }: Site): Promise<CommandPlan> {
  const text = commandText(program, to, linesBack(node));
  const there = (await readSaved(commandFile))?.content.toString('utf8');
  if (there === text) return { changes: [], already: [`resizectl is at ${commandFile}`] };
  if (there !== undefined && !isOurs(there))
    return { changes: [], already: [`${commandFile} does not belong to cri-resize-shim and is kept`] };
  return { changes: [writing(commandFile, text, { mode: 0o755 })], already: [] };
}

/** Removes the command if it is ours. */
export async function removingCommand({ commandFile }: Site): Promise<readonly Change[]> {
  const there = await readSaved(commandFile);
  return there !== undefined && isOurs(there.content.toString('utf8')) ? [removing(commandFile)] : [];
}

const isOurs = (text: string): boolean => text.split('\n', 2)[1] === OURS;

/**
 * The script, for sh(1).
 * @param back lines of shell that do what is most urgent, printed if the program cannot be executed
 */
export function commandText(program: Program, to: string, back: readonly string[]): string {
  const words = resizectlOf(program, to).map((word) => `'${word.replaceAll("'", `'\\''`)}'`);
  return [
    '#!/bin/sh',
    OURS,
    `if [ ! -x ${words[0]} ]; then`,
    "  cat >&2 <<'END'",
    'resizectl cannot run: its program is missing. resizectl install from a release repairs it. These lines lead to containerd:',
    '  systemctl start cri-resize-shim-bypass.service; systemctl stop cri-resize-shim.service',
    'These lines point kubelet at containerd, and stop the shim:',
    ...back.map((line) => `  ${line}`),
    'END',
    '  exit 127',
    'fi',
    `exec ${words.join(' ')} "$@"`,
    '',
  ].join('\n');
}
