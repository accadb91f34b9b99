import { readFile, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { readShipped } from '../../core/shipped/index.ts';
import { type Change, together } from './change.ts';
import { planCommand, removingCommand } from './command.ts';
import { keep, removing, writing } from './files.ts';
import { pastShim, runningKubelet, throughShim } from './kubelet-change.ts';
import type { Kubelet } from './kubelet.ts';
import { Refusal } from './kubelet-setting.ts';
import { isInPlace, isThere, placing, removingProgram } from './program.ts';
import { type Program, originOf, startOf } from './programs.ts';
import { isUp, keepingOlder, starting, stopping, unitsState } from './service.ts';
import { SERVICE, type Site, UNITS, oursOf, socketOf } from './site.ts';
import { systemctl } from './systemctl.ts';

/** What there is to do, and what is so already. */
export interface Plan {
  readonly changes: readonly Change[];
  readonly already: readonly string[];
}

/** Looks at a node, and says what installing the shim comes to. Changes nothing. Throws Refusal. */
export async function planInstall(site: Site): Promise<Plan> {
  if (!(await isThere(site.node.systemdFolder)))
    throw new Refusal('systemd does not run this node', 'start the shim before kubelet by what runs this node instead');
  const kubelet = await runningKubelet(site);
  const isThrough = socketOf(kubelet.endpoint) === site.node.listen;
  if (!isThrough) await refuseOtherRuntime(site, kubelet);

  // A package has put both where they belong, and keeps the units elsewhere.
  const { program: origin } = site;
  const isPackaged = origin.kind === 'folder' && !(await isThere(join(origin.folder, 'systemd')));
  const program = isPackaged || (await isInPlace(site)) ? [] : [placing(site)];
  const units = isPackaged ? [] : await unitChanges(site);
  const command = isPackaged ? { changes: [], already: [] } : await planCommand(site);
  const settings = await missingSettings(site);
  const state = await unitsState();
  const isNew = program.length + units.length + settings.length > 0;
  const start = isNew || !(await isUp(site.node, state)) ? [starting(site, state)] : [];
  const older = isNew && state.active.includes(SERVICE) ? [keepingOlder(site)] : [];
  const move = isThrough ? [] : [await throughShim(site, kubelet)];

  const already = [
    ...(isPackaged ? [`the program at ${originOf(origin)}, and its units, are a package's`] : []),
    ...(!isPackaged && program.length === 0 ? [`the program is at ${site.to}`] : []),
    ...(!isPackaged && units.length === 0 ? [`its units are in ${site.unitFolder}`] : []),
    ...command.already,
    ...(settings.length === 0 ? [`${site.configFile} and ${site.flagsFile} are there`] : []),
    ...(start.length === 0 ? [`${UNITS.join(', ')} are enabled, and the shim is ready`] : []),
    ...(isThrough ? [`${site.node.kubeletUnit} goes to ${oursOf(site)}`] : []),
  ];
  return { changes: [...older, ...program, ...command.changes, ...units, ...settings, ...start, ...move], already };
}

/** The same backwards. What a person has written (configuration) and what the shim has (state) stay. Throws Refusal. */
export async function planUninstall(site: Site): Promise<Plan> {
  const state = await unitsState();
  const files = UNITS.map((unit) => join(site.unitFolder, unit));
  const written = (await Promise.all(files.map(async (file) => ((await isThere(file)) ? [file] : [])))).flat();
  const hasProgram = await isThere(site.to);
  const isHere = state.active.length + state.enabled.length + written.length > 0 || hasProgram;
  const move = await moveBack(site, isHere);
  const stop = state.active.length + state.enabled.length > 0 ? [stopping(site, state)] : [];
  const units = written.length === 0 ? [] : [together(`remove ${written.join(', ')}`, written.map(removing), reload)];
  const command = await removingCommand(site);
  const changes = [...move, ...stop, ...units, ...command, ...(hasProgram ? [removingProgram(site.to)] : [])];
  return { changes, already: changes.length === 0 ? ['nothing of it is installed here'] : [] };
}

async function moveBack(site: Site, isHere: boolean): Promise<readonly Change[]> {
  try {
    const kubelet = await runningKubelet(site);
    return socketOf(kubelet.endpoint) === site.node.listen ? [await pastShim(site, kubelet)] : [];
  } catch (error) {
    // Nothing would be taken from under a kubelet that is not seen.
    if (error instanceof Refusal && !isHere) return [];
    throw error;
  }
}

/** A shim in front of another containerd than kubelet has now would show it a node without its pods. */
async function refuseOtherRuntime({ node, configFile }: Site, { endpoint }: Kubelet): Promise<void> {
  const itself = (path: string): Promise<string> => realpath(path).catch(() => path);
  const [now, behind] = [socketOf(endpoint), node.containerd];
  if ((await itself(now)) === (await itself(behind))) return;
  throw new Refusal(
    `kubelet goes to ${endpoint}, and the shim would go to unix://${behind}`,
    `write "containerRuntimeEndpoint: ${endpoint}" to ${configFile}, and try again`,
  );
}

async function reload(): Promise<void> {
  await systemctl(['daemon-reload']);
}

/** The units as this machine needs them: starting the program where and as it is put. */
async function unitChanges({ program, to, unitFolder }: Site): Promise<readonly Change[]> {
  const changes: Change[] = [];
  for (const unit of UNITS) {
    const text = unitText(await shippedUnit(program, unit), { program, to });
    const there = await keep(join(unitFolder, unit));
    if (there?.content.toString('utf8') !== text) changes.push(writing(join(unitFolder, unit), text));
  }
  if (changes.length === 0) return [];
  return [together(changes.map(({ says }) => says).join(', '), changes, reload)];
}

async function shippedUnit(program: Program, unit: string): Promise<string> {
  const path = `systemd/${unit}`;
  return program.kind === 'folder' ? readFile(join(program.folder, path), 'utf8') : readShipped(path);
}

/** A unit as it is shipped, starting this program in its place. */
export function unitText(shipped: string, { program, to }: Pick<Site, 'program' | 'to'>): string {
  return shipped
    .replace(SHIPPED_START, () => `ExecStart=${startOf(program, to)}`)
    .replaceAll('/usr/local/lib/cri-resize-shim', () => to);
}

const SHIPPED_START = /^ExecStart=\/usr\/bin\/node \/usr\/local\/lib\/cri-resize-shim\/dist\/cri-resize-shim\.js/m;

/** What a person may have written stays, unless the person says now what it shall be. */
async function missingSettings({ configFile, configText, isConfigGiven, flagsFile }: Site): Promise<readonly Change[]> {
  const flags = `CRI_RESIZE_SHIM_FLAGS="--config ${configFile}"\n`;
  const config = (await keep(configFile))?.content.toString('utf8');
  const isOther = config === undefined || (isConfigGiven && config !== configText);
  return [
    ...(isOther ? [writing(configFile, configText)] : []),
    ...((await isThere(flagsFile)) ? [] : [writing(flagsFile, flags)]),
  ];
}
