import { stat } from 'node:fs/promises';
import { messageOf } from '../../core/errors/index.ts';
import { type EndpointChain, ENDPOINT_FLAG, ENDPOINT_KEY, isSameSocket, layerName } from '../../endpoint/index.ts';
import type { Node } from '../host/index.ts';
import { type Kubelet, type KubeletFound, chainLines, findKubelet } from '../kubelet/index.ts';
import { type Finding, findingsOf } from './finding.ts';

const { ok, warning, failed } = findingsOf('kubelet');
const MANUALLY = `check ${ENDPOINT_KEY} of kubelet manually`;

/** Checks which runtime kubelet uses, and what sets it. */
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

async function findingOf(node: Node, found: KubeletFound): Promise<Finding> {
  const { kubeletUnit: unit } = node;
  switch (found.kind) {
    case 'no unit':
      return warning(`no unit ${unit}`, 'specify the unit with --kubelet-unit, if this node runs kubelet');
    case 'stopped':
      return warning(`${unit} is ${found.state}`, `systemctl start ${unit}`);
    case 'unclear': {
      const why = `${unit} runs, but its endpoint is unknown: ${found.why}`;
      return withChain(failed(why, 'check the --config flag of kubelet'), found.chain);
    }
    case 'running':
      return withChain(await endpointFinding(node, found.kubelet), found.kubelet.chain);
  }
}

const withChain = (finding: Finding, chain: EndpointChain | undefined): Finding =>
  chain === undefined ? finding : { ...finding, details: chainLines(chain) };

async function endpointFinding(node: Node, { endpoint, chain }: Kubelet): Promise<Finding> {
  const ours = `unix://${node.listen}`;
  const origin = `set by ${layerName(chain.winner)}`;
  if (!(await isSameSocket(endpoint, node.listen)))
    return warning(
      `uses ${endpoint}, not the shim (${origin})`,
      chain.winner.kind === 'flag' ? `set ${ENDPOINT_FLAG}=${ours}` : `set ${ENDPOINT_KEY}: ${ours}`,
    );
  const broken = chain.layers.find(({ problem }) => problem !== undefined);
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

const LASTING = 'run resizectl install: it sets the endpoint there too';

/** What an upgrade by kubeadm would do to the endpoint; undefined if the shim stays. */
async function kubeadmLoss({ listen }: Node, { winner, kubeadm }: EndpointChain): Promise<string | undefined> {
  if (kubeadm === undefined || winner.kind !== 'config') return undefined;
  const { file, endpoint, problem } = kubeadm;
  if (problem !== undefined) return `kubeadm upgrade node fails: ${problem}`;
  if (endpoint !== undefined && (await isSameSocket(endpoint, listen))) return undefined;
  return `kubeadm upgrade node sets ${endpoint ?? 'the default'} again (${file})`;
}
