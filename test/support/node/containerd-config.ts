import { pauseImage } from './parts/images.ts';
import type { ContainerdRelease } from './parts/parts.ts';

export interface ContainerdSettings {
  readonly release: ContainerdRelease;
  /** The program of the OCI runtime. */
  readonly runtime: string;
  readonly cniPlugins: string;
  /** Whether the runtime creates its cgroups through systemd. */
  readonly systemdCgroup: boolean;
}

export const containerdSocket = '/run/containerd/containerd.sock';
const cniConfigFolder = '/run/node/cni';

// Disables block devices, other snapshotters and traces, which cannot work in the node and only delay its start.
const disabled = [
  'snapshotter.v1.btrfs',
  'snapshotter.v1.zfs',
  'snapshotter.v1.devmapper',
  'snapshotter.v1.blockfile',
  'tracing.processor.v1.otlp',
];

/**
 * Time limits of containerd that are 2 to 5 s by default. Next to other nodes on a slow machine, its own processes take
 * longer to answer, and a pod cannot be stopped then.
 */
const patience = ['shim.cleanup', 'shim.load', 'shim.shutdown', 'task.state'];

/** containerd's configuration file: format 2 for 1.x, format 3 for 2.x. */
export function containerdConfig(settings: ContainerdSettings): string {
  const common = [
    `version = ${settings.release.startsWith('1.') ? 2 : 3}`,
    'root = "/var/lib/containerd"',
    'state = "/run/containerd"',
    'oom_score = -999',
    `disabled_plugins = [${disabled.map((name) => `"io.containerd.${name}"`).join(', ')}]`,
    '[grpc]',
    `address = "${containerdSocket}"`,
    '[timeouts]',
    ...patience.map((name) => `"io.containerd.timeout.${name}" = "60s"`),
  ];
  const cri = settings.release.startsWith('1.') ? criOfFormat2(settings) : criOfFormat3(settings);
  return `${[...common, ...cri].join('\n')}\n`;
}

function criOfFormat2(settings: ContainerdSettings): string[] {
  const cri = 'plugins."io.containerd.grpc.v1.cri"';
  return [
    `[${cri}]`,
    `sandbox_image = "${pauseImage}"`,
    'disable_apparmor = true',
    ...runtimeTables(`${cri}.containerd`, settings),
    `[${cri}.cni]`,
    `bin_dir = "${settings.cniPlugins}"`,
    `conf_dir = "${cniConfigFolder}"`,
  ];
}

function criOfFormat3(settings: ContainerdSettings): string[] {
  const runtime = 'plugins."io.containerd.cri.v1.runtime"';
  return [
    '[plugins."io.containerd.cri.v1.images".pinned_images]',
    `sandbox = "${pauseImage}"`,
    `[${runtime}]`,
    'disable_apparmor = true',
    ...runtimeTables(`${runtime}.containerd`, settings),
    `[${runtime}.cni]`,
    `bin_dirs = ["${settings.cniPlugins}"]`,
    `conf_dir = "${cniConfigFolder}"`,
  ];
}

function runtimeTables(table: string, settings: ContainerdSettings): string[] {
  return [
    `[${table}]`,
    'default_runtime_name = "runc"',
    `[${table}.runtimes.runc]`,
    'runtime_type = "io.containerd.runc.v2"',
    `[${table}.runtimes.runc.options]`,
    `BinaryName = "${settings.runtime}"`,
    `SystemdCgroup = ${settings.systemdCgroup}`,
  ];
}

/** A bridge for pods that do not use the host network: they reach only each other and the node. */
export function cniConfig(): string {
  const bridge = {
    type: 'bridge',
    bridge: 'cni0',
    isGateway: true,
    ipMasq: false,
    ipam: { type: 'host-local', ranges: [[{ subnet: '10.88.0.0/16' }]], routes: [{ dst: '0.0.0.0/0' }] },
  };
  return JSON.stringify({ cniVersion: '1.0.0', name: 'pods', plugins: [bridge, { type: 'loopback' }] }, null, 2);
}
