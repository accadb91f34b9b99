import { MiB } from '../../../src/core/quantities/sizes.ts';

/** Valid messages of a small node, as kubelet, containerd and clients of the resize API send them. */

export const resources = {
  cpu_period: 100_000n,
  cpu_quota: 50_000n,
  cpu_shares: 512n,
  memory_limit_in_bytes: BigInt(128 * MiB),
  oom_score_adj: 900n,
  cpuset_cpus: '0-1',
  hugepage_limits: [{ page_size: '2MB', limit: 0n }],
  unified: { 'memory.high': '100000000' },
  memory_swap_limit_in_bytes: BigInt(128 * MiB),
};

/** The `info` of a verbose PodSandboxStatus. */
export const podInfo = {
  config: {
    metadata: { name: 'web', uid: '1b4e28ba-2fa1-11d2-883f-0016d3cca427', namespace: 'default' },
    annotations: { 'volume.cri-resize-shim.io/cache': '50%' },
    linux: {
      cgroup_parent: '/kubepods/burstable/pod1b4e28ba-2fa1-11d2-883f-0016d3cca427',
      overhead: { memory_limit_in_bytes: MiB, cpu_quota: 1000, cpu_period: 100_000 },
      resources: { cpu_shares: 512 },
    },
  },
};

/** The configuration of a pod in a RunPodSandbox request. */
export const podConfig = {
  ...podInfo.config,
  linux: {
    ...podInfo.config.linux,
    overhead: { memory_limit_in_bytes: BigInt(MiB), cpu_quota: 1000n, cpu_period: 100_000n },
    resources: { cpu_shares: 512n },
  },
};

/** The `info` of a verbose ContainerStatus. */
export const containerInfo = { sandboxID: 'p1', pid: 1, config: { metadata: { name: 'web' } } };

/** The `config` of a verbose Status. */
export const runtimeConfiguration = {
  containerd: { defaultRuntimeName: 'runc', runtimes: { runc: { options: { SystemdCgroup: false } } } },
  systemdCgroup: false,
};

const amounts = (cpu: string, memory: string) => ({ limits: { cpu, memory }, requests: { cpu, memory } });

export const resizeRequests: readonly object[] = [
  { pod: { sandbox_id: 'p1' }, resources: amounts('500m', '256Mi'), containers: { web: amounts('250m', '128Mi') } },
  { pod: { uid: podInfo.config.metadata.uid }, volumes: { cache: '64Mi', data: '50%/web' }, dry_run: true },
  { pod: { name: { namespace: 'default', name: 'web' } }, resources: amounts('max', 'max'), defer: true },
  { pod: { sandbox_id: 'p1' }, containers: { web: { limits: { memory: '1Gi' } } }, timeout: { seconds: 1, nanos: 5 } },
];
