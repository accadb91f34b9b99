import { messageOf } from '../../core/errors/index.ts';
import { type EndpointChain, kubeletOfUnit, layerName, readEndpointChain } from '../../endpoint/index.ts';
import { type Node, unitProperties } from '../host/index.ts';

/** The setup of the kubelet that runs on a node. */
export interface Kubelet {
  /** `unix:///run/containerd/containerd.sock`, as written in the place that wins. */
  readonly endpoint: string;
  readonly chain: EndpointChain;
}

export type KubeletFound =
  | { readonly kind: 'running'; readonly pid: string; readonly kubelet: Kubelet }
  /** `state` is systemd's ActiveState: `inactive`, `failed`. */
  | { readonly kind: 'stopped'; readonly state: string }
  | { readonly kind: 'no unit' }
  /** It runs, but its setup cannot be read. */
  | { readonly kind: 'unclear'; readonly why: string; readonly chain?: EndpointChain };

/**
 * Reads the setup of kubelet from the command line of its process, so it does not matter which unit, drop-in or environment file
 * set it. Rejects if systemd does not answer.
 */
export async function findKubelet(node: Node): Promise<KubeletFound> {
  const properties = await unitProperties(node.kubeletUnit, ['LoadState', 'ActiveState', 'MainPID']);
  const one = (name: string): string | undefined => properties(name)[0];
  if (one('LoadState') !== 'loaded') return { kind: 'no unit' };
  const pid = one('MainPID') ?? '0';
  if (pid === '0') return { kind: 'stopped', state: one('ActiveState') ?? 'unknown' };
  try {
    const { flags, view } = await kubeletOfUnit(node.procRoot, Number(pid));
    const chain = await readEndpointChain(flags, view);
    if (chain.endpoint !== undefined) return { kind: 'running', pid, kubelet: { endpoint: chain.endpoint, chain } };
    return { kind: 'unclear', why: problemsOf(chain), chain };
  } catch (error) {
    return { kind: 'unclear', why: messageOf(error) };
  }
}

const problemsOf = ({ layers }: EndpointChain): string =>
  layers.flatMap(({ problem }) => (problem === undefined ? [] : [problem])).join('; ');

/** Describes where the endpoint comes from, one line for each place, in the order in which kubelet applies them. */
export function chainLines({ layers, winner, kubeadm }: EndpointChain): readonly string[] {
  const lines = layers.map((layer) => {
    const said = layer.problem ?? layer.endpoint ?? 'not set';
    return `${layerName(layer)}: ${said}${layer === winner ? ' (wins)' : ''}`;
  });
  if (kubeadm === undefined) return lines;
  const { file, endpoint, problem } = kubeadm;
  return [...lines, `${file}: ${problem ?? endpoint ?? 'not set'} (kubeadm applies it at its next upgrade)`];
}
