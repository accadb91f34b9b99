import { constants } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { CgroupTree } from '../../cgroups/index.ts';
import { ConfigError, effectiveSettings, errnoOf, MiB, messageOf } from '../../core/index.ts';
import { answerOf } from '../host/query-runtime.ts';
import type { Node } from '../host/site.ts';
import { serviceFlags } from '../host/systemd.ts';
import { checkBypass, isBypassed } from './bypass.ts';
import { checkKubelet } from './check-kubelet.ts';
import { type Finding, findingsOf } from './finding.ts';
import { checkInstallation, checkSpace, hasProgram, isThere, PACKAGE_FOLDER } from './program.ts';
import { checkKubeletRuntime } from './way-back.ts';

/** Checks one requirement and changes nothing. Rejects only for internal errors. */
export type Check = (node: Node) => Promise<Finding>;

/** A journal record takes a few KiB, and a node has a few hundred pods. */
const STATE_BYTES = 16 * MiB;

/** All checks, in the order of their dependencies. */
export const checks: readonly Check[] = [
  checkUser,
  checkNodeVersion,
  checkKernel,
  checkCgroups,
  checkSystemd,
  ({ programFolder }) => checkInstallation(programFolder),
  checkConfiguration,
  checkContainerd,
  checkShim,
  checkBypass,
  checkKubelet,
  checkKubeletRuntime,
  checkProgramSpace,
  ({ stateFolder }) => checkSpace('state room', stateFolder, STATE_BYTES),
  checkStateFolder,
];

/** Runs all checks one after the other. */
export async function diagnose(node: Node): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  for (const check of checks) findings.push(await check(node));
  return findings;
}

function checkUser({ uid }: Node): Promise<Finding> {
  const { ok, failed } = findingsOf('user');
  return Promise.resolve(
    uid === 0 ? ok('root') : failed(`uid ${uid}`, 'run as root: the shim writes to cgroups and remounts volumes'),
  );
}

/** The versions that package.json requires (engines). */
function checkNodeVersion({ nodeVersion }: Node): Promise<Finding> {
  const { ok, failed } = findingsOf('node');
  return Promise.resolve(
    isAtLeast(nodeVersion, '24.0.0')
      ? ok(`Node ${nodeVersion}`)
      : failed(`Node ${nodeVersion} is too old`, 'install Node 24 or later'),
  );
}

function checkKernel({ kernel }: Node): Promise<Finding> {
  const { ok, warning } = findingsOf('kernel');
  if (isAtLeast(kernel, '5.19')) return Promise.resolve(ok(`Linux ${kernel}`));
  const lacks = isAtLeast(kernel, '5.2')
    ? 'has no memory.reclaim: the shim lowers memory limits with memory.high only'
    : 'has neither memory.reclaim nor fspick: the shim lowers memory limits with memory.high only, and remounts volumes with mount(8)';
  return Promise.resolve(warning(`Linux ${kernel} ${lacks}`, 'use Linux 5.19 or later'));
}

async function checkCgroups({ cgroupRoot }: Node): Promise<Finding> {
  const { ok, failed } = findingsOf('cgroups');
  const tree = new CgroupTree(cgroupRoot);
  const version = tree.version();
  if (version !== 2) {
    const found = version === undefined ? 'no cgroup file system' : 'cgroup v1, or v1 and v2 together';
    return failed(`${found} at ${cgroupRoot}`, 'boot with systemd.unified_cgroup_hierarchy=1: resizes need cgroup v2');
  }
  const there = (await tree.readFile('/', 'cgroup.controllers')).split(' ');
  const missing = ['cpu', 'memory'].filter((name) => !there.includes(name));
  if (missing.length === 0) return ok(`v2 at ${cgroupRoot}, with ${there.join(', ')}`);
  return failed(
    `v2 at ${cgroupRoot}, without ${missing.join(' and ')}`,
    'remove cgroup_disable= and cgroup_no_v1= from the kernel command line, and check that no cgroup v1 hierarchy uses the controllers',
  );
}

async function checkSystemd({ systemdFolder }: Node): Promise<Finding> {
  const { ok, warning } = findingsOf('systemd');
  if (await exists(systemdFolder)) return ok('init system of this node');
  return warning('not the init system of this node', 'start the shim before kubelet with the init system of this node');
}

async function checkContainerd({ containerd }: Node): Promise<Finding> {
  const { ok, warning, failed } = findingsOf('containerd');
  const remedy = 'start containerd, or set its socket with --container-runtime-endpoint';
  const runtime = await answerOf(containerd);
  if ('error' in runtime) return failed(`${containerd}: ${runtime.error}`, remedy);
  if (runtime.shim !== undefined)
    return failed(`${containerd} is served by a cri-resize-shim`, 'specify the socket of containerd itself');
  const { name, version } = runtime;
  // It has other cgroups, and kubelet chooses its source of stats by the name crio.sock (UsingLegacyCadvisorStats).
  if (name === 'cri-o') return failed(`${containerd}: CRI-O ${version} is not supported`, 'see docs/install/other.md');
  if (name !== 'containerd')
    return warning(`${containerd}: ${name} ${version}`, 'the shim is tested with containerd only');
  if (isAtLeast(version.replace(/^v/, ''), '1.6')) return ok(`${version} at ${containerd}`);
  return failed(`${version} at ${containerd} is too old`, 'upgrade containerd to 1.6 or later');
}

/** Checks what serves the socket of the shim. */
async function checkShim(node: Node): Promise<Finding> {
  const { listen } = node;
  const { ok, warning, failed } = findingsOf('shim');
  if (!(await exists(listen))) return ok(`not running: no socket at ${listen}`);
  const runtime = await answerOf(listen);
  if ('error' in runtime)
    return warning(`${listen} does not answer: ${runtime.error}`, 'check the log: journalctl -u cri-resize-shim');
  if (runtime.shim === undefined && (await isBypassed(node)))
    return warning(
      `not running: the bypass serves ${listen}`,
      'check the log (journalctl -u cri-resize-shim), then: resizectl bypass off',
    );
  if (runtime.shim === undefined)
    return failed(
      `${listen} is served by something else (${runtime.name} ${runtime.version})`,
      'stop it, or set another socket with --listen',
    );
  if (runtime.shim.passThrough === 'configured')
    return ok(`serves ${listen}, off by configuration (intercept: false): every call is forwarded unchanged`);
  const problems = runtime.shim.checks.filter(({ ready }) => !ready).map(({ name, says }) => `${name}: ${says}`);
  if (runtime.shim.passThrough !== undefined)
    return warning(
      `serves ${listen}, but acts on no resize: ${problems.join('; ')}`,
      'correct the configuration, then: systemctl restart cri-resize-shim',
    );
  if (runtime.shim.ready && problems.length > 0)
    return warning(`serves ${listen}, ready, with limits: ${problems.join('; ')}`, 'see readiness in docs/metrics.md');
  if (runtime.shim.ready) return ok(`serves ${listen}, ready`);
  return failed(`serves ${listen}, but cannot resize: ${problems.join('; ')}`, 'see readiness in docs/metrics.md');
}

/** Checks the space for the program. If installed, it needs none until an upgrade, which planInstall checks. */
async function checkProgramSpace({ programFolder, programSpace }: Node): Promise<Finding> {
  const isReadOnly = await access(programFolder, constants.W_OK).then(
    () => false,
    (error: unknown) => errnoOf(error) === 'EROFS',
  );
  const finding = isReadOnly
    ? findingsOf('program room').failed(
        `${programFolder}: its file system is read-only`,
        'make /usr/local or /opt writable',
      )
    : await checkSpace('program room', programFolder, programSpace);
  const isInstalled = (await hasProgram(join(programFolder, 'cri-resize-shim'))) || (await hasProgram(PACKAGE_FOLDER));
  if (finding.result !== 'failed' || !isInstalled) return finding;
  return findingsOf(finding.check).warning(finding.found, `before an upgrade, ${finding.remedy}`);
}

async function checkStateFolder({ stateFolder }: Node): Promise<Finding> {
  const { ok, failed } = findingsOf('state folder');
  try {
    const { uid, mode } = await stat(stateFolder);
    if (uid === 0 && (mode & 0o022) === 0) return ok(`${stateFolder}, writable by root only`);
    const found = `${stateFolder} is owned by uid ${uid}, mode ${(mode & 0o777).toString(8)}`;
    return failed(found, `chown root ${stateFolder}; chmod 0700 ${stateFolder}`);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return ok(`${stateFolder} is created at the first start`);
    return failed(messageOf(error), 'use a folder that root owns');
  }
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}

/** Problems in one finding. A file may have any number. */
const MOST_PROBLEMS = 3;

/** Checks the service's flags and the file they name, as on disk, or the file an installation would use. */
async function checkConfiguration(node: Node): Promise<Finding> {
  const { flagsFile } = node;
  const { ok, failed } = findingsOf('configuration');
  try {
    const { configFile, settings } = await effectiveSettings(await plannedFlags(node));
    const isOff = settings.some(({ key, value }) => key === 'intercept' && value === false);
    const note = isOff ? ', off by configuration (intercept: false)' : '';
    return ok(`${configFile === undefined ? 'no file: the defaults apply' : `${configFile}, valid`}${note}`);
  } catch (error) {
    if (!(error instanceof ConfigError)) return failed(messageOf(error), `check ${flagsFile}`);
    const { problems, source } = error;
    const more = problems.length > MOST_PROBLEMS ? `; and ${problems.length - MOST_PROBLEMS} more` : '';
    const where = source === 'usage' ? `${flagsFile}: ` : '';
    return failed(
      `${where}${problems.slice(0, MOST_PROBLEMS).join('; ')}${more}`,
      'correct it until resizectl config check passes, then: systemctl restart cri-resize-shim',
    );
  }
}

/** Returns the service's flags. Before an installation: those it would write if the configuration file exists. */
export async function plannedFlags({
  flagsFile,
  configFile,
}: Pick<Node, 'flagsFile' | 'configFile'>): Promise<readonly string[]> {
  if ((await isThere(flagsFile)) || !(await isThere(configFile))) return serviceFlags(flagsFile);
  return ['--config', configFile];
}

/** Returns the leading numbers of a release: 6, 1 and 0 for `6.1.0-18-amd64`. */
export function numbersOf(release: string): number[] {
  const [numbers = ''] = /^\d+(\.\d+)*/.exec(release) ?? [];
  return numbers === '' ? [] : numbers.split('.').map(Number);
}

/** Whether a release is at least `least`. False for a release without numbers. */
export function isAtLeast(release: string, least: string): boolean {
  const [found, wanted] = [numbersOf(release), numbersOf(least)];
  if (found.length === 0) return false;
  for (const [index, number] of wanted.entries()) {
    const other = found[index] ?? 0;
    if (other !== number) return other > number;
  }
  return true;
}
