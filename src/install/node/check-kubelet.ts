import { stat } from 'node:fs/promises';
import { messageOf } from '../../core/index.ts';
import { type EndpointChain, type Layer, layerName } from '../../kubelet/endpoint/chain.ts';
import { ENDPOINT_KEY } from '../../kubelet/endpoint/configuration.ts';
import { isSameSocket } from '../../kubelet/endpoint/paths.ts';
import type { Node } from '../host/site.ts';
import {
  chainLines,
  type EnvironmentProblem,
  findKubelet,
  type Kubelet,
  type KubeletFound,
  readStoppedKubelet,
} from '../kubelet/kubelet.ts';
import { readRestarts, restartNote, type Stop, stopOf } from '../kubelet/restarts.ts';
import { type Finding, findingsOf } from './finding.ts';

const { ok, warning, failed } = findingsOf('kubelet');
const MANUALLY = `check ${ENDPOINT_KEY} of kubelet manually`;

/** Checks which runtime kubelet uses and where its endpoint is set. */
export async function checkKubelet(node: Node): Promise<Finding> {
  const hasSystemd = await stat(node.systemdFolder).then(
    () => true,
    () => false,
  );
  if (!hasSystemd) return warning('not checked: systemd is not the init system of this node', MANUALLY);
  try {
    return await findingOf(node, await findKubelet(node));
  } catch (error) {
    return warning(`cannot be checked: ${messageOf(error)}`, MANUALLY);
  }
}

/** Says that kubelet does not run after an installation, or undefined. @param before findings before it */
export async function kubeletAfterInstall(node: Node, before: readonly Finding[]): Promise<string | undefined> {
  const { kubeletUnit: unit } = node;
  try {
    const found = await findKubelet(node);
    if (found.kind === 'stopped') return `${unit} does not run (${found.state}): see resizectl doctor`;
    const hasFailed = before.some(({ check, result }) => check === 'kubelet' && result === 'failed');
    return hasFailed ? `${unit} ended again after each start until now: see resizectl doctor` : undefined;
  } catch (error) {
    return `whether ${unit} runs is unknown: ${messageOf(error)}`;
  }
}

async function findingOf(node: Node, found: KubeletFound): Promise<Finding> {
  const { kubeletUnit: unit } = node;
  switch (found.kind) {
    case 'no unit':
      return warning(`no unit ${unit}`, 'specify the unit with --kubelet-unit, if this node runs kubelet');
    case 'stopped':
      return stoppedFinding(node, found.state);
    case 'unclear': {
      const why = `${unit} runs, but its endpoint is unknown: ${found.why}`;
      const isDenied = found.chain?.layers.some((layer) => layer.isDenied) === true;
      const finding = isDenied ? warning(why, AS_ROOT) : failed(why, 'check the --config flag of kubelet');
      return running(node, withChain(finding, found.chain));
    }
    case 'running':
      return running(
        node,
        withChain(await endpointFinding(node, found.kubelet), found.kubelet.chain),
        await isSameSocket(found.kubelet.endpoint, node.listen),
      );
  }
}

const AT_SHIM = { isLoopAtShim: true } as const;

/** Adds the restarts of kubelet, which may run only for a while if it ends after each start. */
async function running(node: Node, finding: Finding, isAtShim = false): Promise<Finding> {
  const { kubeletUnit: unit } = node;
  const note = restartNote(await readRestarts(node, isAtShim), unit);
  if (note === undefined) return finding;
  const isLoop = note.kind === 'loop';
  const found = isLoop ? `${note.text}; ${finding.found}` : `${finding.found}; ${note.text}`;
  if (note.kind === 'note') return { ...finding, found };
  const result = isLoop || finding.result === 'failed' ? 'failed' : 'warning';
  const remedies = [`journalctl -u ${unit}`, ...(finding.remedy === '' ? [] : [finding.remedy])];
  return { ...finding, result, found, remedy: remedies.join('\n'), ...(isLoop && isAtShim && AT_SHIM) };
}

/** Returns the finding for a stopped kubelet. The cause is in its files or in its journal. */
async function stoppedFinding(node: Node, state: string): Promise<Finding> {
  const { chain, environment } = await readStoppedKubelet(node);
  const isAtShim = await isSameSocket(chain?.endpoint ?? '', node.listen);
  const stop = stopOf(await readRestarts(node, isAtShim), node.kubeletUnit, state);
  if (environment !== undefined) return environmentFinding(stop, environment);
  if (chain === undefined) return findingOfStop(stop, stop.what);
  const broken = chain.layers.find(({ problem }) => problem !== undefined);
  if (broken !== undefined && !(broken.isDenied === true && chain.endpoint !== undefined))
    return withChain(brokenFinding(stop, broken), chain);
  const { endpoint = '', winner } = chain;
  const uses = isAtShim ? 'the shim' : `${endpoint}, not the shim`;
  const finding = findingOfStop(stop, `${stop.what}, configured with ${uses} (set by ${layerName(winner)})`);
  return withChain({ ...finding, ...(stop.fails && state === 'activating' && isAtShim && AT_SHIM) }, chain);
}

const findingOfStop = ({ fails, remedy }: Stop, found: string): Finding =>
  fails ? failed(found, remedy) : warning(found, remedy);

/** Returns the finding for a broken file. A file that we may not read is only a warning. */
const brokenFinding = ({ what }: Stop, broken: Layer): Finding =>
  broken.isDenied === true
    ? warning(`${what}: ${broken.problem ?? ''}`, AS_ROOT)
    : failed(`${what}: ${broken.problem ?? ''}`, `repair ${layerName(broken)}`);

function environmentFinding({ what }: Stop, { file, problem, isDenied }: EnvironmentProblem): Finding {
  if (isDenied === true) return warning(`${what}: ${problem}`, AS_ROOT);
  const optional = `or let the unit start without it: EnvironmentFile=-${file}`;
  return failed(`${what}, and systemd does not start it: EnvironmentFile: ${problem}`, `repair ${file}, ${optional}`);
}

const AS_ROOT = 'run resizectl doctor as root';

const withChain = (finding: Finding, chain: EndpointChain | undefined): Finding =>
  chain === undefined ? finding : { ...finding, details: chainLines(chain) };

async function endpointFinding(node: Node, { endpoint, chain }: Kubelet): Promise<Finding> {
  const origin = `set by ${layerName(chain.winner)}`;
  if (!(await isSameSocket(endpoint, node.listen)))
    return warning(`uses ${endpoint}, not the shim (${origin})`, INSTALL);
  const broken = chain.layers.find(({ problem, isDenied }) => problem !== undefined && isDenied !== true);
  if (broken !== undefined)
    return warning(
      `uses the shim (${origin}), but does not start again: ${broken.problem ?? ''}`,
      `repair ${layerName(broken)} before kubelet restarts`,
    );
  const next = await kubeadmLoss(node, chain);
  return next === undefined
    ? ok(`uses the shim (${origin})`)
    : warning(`uses the shim (${origin}), but ${next}`, LASTING);
}

/** Remedy: the installation sets the endpoint only once a shim serves there, and reports why if it cannot. */
const INSTALL = 'run resizectl install: it starts the shim, and then sets the endpoint';
const LASTING = 'run resizectl install: it sets the endpoint there too';

/** Describes how a kubeadm upgrade would change the endpoint; undefined if kubelet stays with the shim. */
async function kubeadmLoss({ listen }: Node, { winner, kubeadm }: EndpointChain): Promise<string | undefined> {
  if (kubeadm === undefined || winner.kind !== 'config') return undefined;
  const { file, endpoint, problem } = kubeadm;
  if (problem !== undefined) return `kubeadm upgrade node fails: ${problem}`;
  if (endpoint !== undefined && (await isSameSocket(endpoint, listen))) return undefined;
  return `kubeadm upgrade node sets ${endpoint ?? 'the default'} again (${file})`;
}
