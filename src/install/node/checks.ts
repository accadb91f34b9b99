import { stat, statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { CgroupTree } from '../../cgroups/index.ts';
import { errnoOf, messageOf } from '../../core/errors/index.ts';
import { type Runtime, askRuntime } from './asked-runtime.ts';
import { type Finding, findingsOf } from './finding.ts';
import { findKubelet } from './kubelet.ts';
import type { Node } from './node.ts';
import { isAtLeast } from './release.ts';
import { socketOf } from './site.ts';

/** Looks at one thing, and changes nothing. Rejects only by a fault of its own. */
export type Check = (node: Node) => Promise<Finding>;

const MI = 1024 * 1024;
/** A record has a few KiB, and a node a few hundred pods. */
const STATE_BYTES = 16 * MI;

/** All of them, in the order in which they build upon each other. */
export const checks: readonly Check[] = [
  checkUser,
  checkNodeVersion,
  checkKernel,
  checkCgroups,
  checkSystemd,
  checkContainerd,
  checkShim,
  checkKubelet,
  ({ programFolder, programRoom }) => checkRoom('program room', programFolder, programRoom),
  ({ stateFolder }) => checkRoom('state room', stateFolder, STATE_BYTES),
  checkStateFolder,
];

/** Carries all out, one after the other. A check that cannot be carried out has failed. */
export async function diagnose(node: Node): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  for (const check of checks) findings.push(await check(node));
  return findings;
}

function checkUser({ uid }: Node): Promise<Finding> {
  const { ok, failed } = findingsOf('user');
  return Promise.resolve(
    uid === 0 ? ok('root') : failed(`uid ${uid}`, 'run it as root: the shim writes cgroups and remounts volumes'),
  );
}

/** As package.json says it (engines). */
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
    ? 'has no memory.reclaim: nothing is reclaimed ahead for kubelet, and lowering memory goes by memory.high alone'
    : 'has neither memory.reclaim nor fspick: volumes are remounted by mount(8)';
  return Promise.resolve(warning(`Linux ${kernel} ${lacks}`, 'Linux 5.19 or later does all of it'));
}

async function checkCgroups({ cgroupRoot }: Node): Promise<Finding> {
  const { ok, failed } = findingsOf('cgroups');
  const tree = new CgroupTree(cgroupRoot);
  const version = await tree.version();
  if (version !== 2) {
    const found = version === undefined ? 'no cgroup file system' : 'cgroup v1, or v1 and v2 together';
    return failed(`${found} at ${cgroupRoot}`, 'boot with systemd.unified_cgroup_hierarchy=1: resizes need cgroup v2');
  }
  const there = (await tree.readFile('/', 'cgroup.controllers')).split(' ');
  const missing = ['cpu', 'memory'].filter((name) => !there.includes(name));
  if (missing.length === 0) return ok(`v2 at ${cgroupRoot}, with ${there.join(', ')}`);
  return failed(
    `v2 at ${cgroupRoot}, without ${missing.join(' and ')}`,
    'take cgroup_disable= and cgroup_no_v1= off the kernel’s command line, and look that no v1 hierarchy holds them',
  );
}

async function checkSystemd({ systemdFolder }: Node): Promise<Finding> {
  const { ok, warning } = findingsOf('systemd');
  if (await isThere(systemdFolder)) return ok('runs this node');
  return warning('does not run this node', 'start the shim before kubelet by what runs this node instead');
}

async function checkContainerd({ containerd }: Node): Promise<Finding> {
  const { ok, warning, failed } = findingsOf('containerd');
  const cure = 'start containerd, or name its socket with --container-runtime-endpoint';
  const runtime = await asked(containerd);
  if ('error' in runtime) return failed(`${containerd}: ${runtime.error}`, cure);
  if (runtime.shim !== undefined)
    return failed(`${containerd} is served by a cri-resize-shim`, 'name containerd’s own socket');
  const { name, version } = runtime;
  if (name !== 'containerd')
    return warning(`${containerd}: ${name} ${version}`, 'the shim is proved with containerd alone');
  if (isAtLeast(version.replace(/^v/, ''), '1.6')) return ok(`${version} at ${containerd}`);
  return failed(`${version} at ${containerd} is too old`, 'upgrade containerd to 1.6 or later');
}

/** What serves the shim's socket, if anything does. */
async function checkShim({ listen }: Node): Promise<Finding> {
  const { ok, warning, failed } = findingsOf('shim');
  if (!(await isThere(listen))) return ok(`not there yet: nothing at ${listen}`);
  const runtime = await asked(listen);
  if ('error' in runtime)
    return warning(`${listen} does not answer: ${runtime.error}`, 'look at the log: journalctl -u cri-resize-shim');
  if (runtime.shim === undefined)
    return failed(
      `${listen} is served by something else (${runtime.name} ${runtime.version})`,
      'stop it, or name another socket with --listen',
    );
  const hindrances = runtime.shim.checks.filter(({ ready }) => !ready).map(({ name, says }) => `${name}: ${says}`);
  if (runtime.shim.ready) return ok(`serves ${listen}, ready`);
  return failed(
    `serves ${listen}, and carries out no resizes: ${hindrances.join('; ')}`,
    'see docs/metrics.md, readiness',
  );
}

async function checkKubelet(node: Node): Promise<Finding> {
  const { ok, warning, failed } = findingsOf('kubelet');
  const ours = `unix://${node.listen}`;
  const byHand = 'look at kubelet’s containerRuntimeEndpoint yourself';
  if (!(await isThere(node.systemdFolder))) return warning('not looked for: systemd does not run this node', byHand);
  try {
    const found = await findKubelet(node);
    switch (found.kind) {
      case 'no unit':
        return warning(`no unit ${node.kubeletUnit}`, 'name it with --kubelet-unit, if this node has one');
      case 'stopped':
        return warning(`${node.kubeletUnit} is ${found.state}`, `systemctl start ${node.kubeletUnit}`);
      case 'unclear':
        return failed(`${node.kubeletUnit} runs, and how is not known: ${found.why}`, 'look at its --config');
      case 'running': {
        const { endpoint, source } = found.kubelet;
        const where = source.kind === 'config' ? source.file : source.kind === 'flag' ? 'a flag' : 'its default';
        if (socketOf(endpoint) === node.listen) return ok(`goes through the shim (by ${where})`);
        return warning(
          `goes to ${endpoint} (by ${where}), past the shim`,
          source.kind === 'flag' ? `set --container-runtime-endpoint=${ours}` : `set containerRuntimeEndpoint: ${ours}`,
        );
      }
    }
  } catch (error) {
    return warning(`cannot be looked at: ${messageOf(error)}`, byHand);
  }
}

/** @param least in bytes */
async function checkRoom(check: string, folder: string, least: number): Promise<Finding> {
  const { ok, failed } = findingsOf(check);
  const at = await nearest(folder);
  const { bavail, bsize } = await statfs(at);
  const free = bavail * bsize;
  const says = `${Math.floor(free / MI)} MiB free for ${folder}`;
  return free >= least ? ok(says) : failed(says, `make room: ${Math.ceil(least / MI)} MiB are wanted`);
}

async function checkStateFolder({ stateFolder }: Node): Promise<Finding> {
  const { ok, failed } = findingsOf('state folder');
  try {
    const { uid, mode } = await stat(stateFolder);
    if (uid === 0 && (mode & 0o022) === 0) return ok(`${stateFolder}, for root alone to write`);
    const says = `${stateFolder} belongs to uid ${uid}, mode ${(mode & 0o777).toString(8)}`;
    return failed(says, `chown root ${stateFolder}; chmod 0700 ${stateFolder}`);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return ok(`${stateFolder} is made at the first start`);
    return failed(messageOf(error), 'the journal has to lie in a folder of root’s');
  }
}

type Asked = Runtime | { readonly error: string };

const asked = (socket: string): Promise<Asked> =>
  askRuntime(socket).catch((error: unknown): Asked => ({ error: causeOf(error) }));

/** grpc-js wraps what the system said in words about its own state. */
const causeOf = (error: unknown): string =>
  /Last error: (?:Error: )?(.*?)\.? Resolution note/.exec(messageOf(error))?.[1] ?? messageOf(error);

async function isThere(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}

/** The folder itself, or the first above it that is there. */
async function nearest(folder: string): Promise<string> {
  for (let at = folder; ; at = dirname(at)) if ((await isThere(at)) || at === dirname(at)) return at;
}
