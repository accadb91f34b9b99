import type { Program } from './programs.ts';
import type { ProvidedKubeconfig } from './provided-kubeconfig.ts';
import type { Wait } from './systemd.ts';

/** A node, and the paths of an installation. */
export interface Site {
  readonly node: Node;
  /** The program to install. */
  readonly program: Program;
  /** `/usr/local/lib/cri-resize-shim`, or `/opt/lib/cri-resize-shim` if that is read-only. */
  readonly to: string;
  /** resizectl in PATH: `bin/resizectl` below `/usr/local` or `/opt` */
  readonly commandFile: string;
  /** The systemd unit folder: `/etc/systemd/system` */
  readonly unitFolder: string;
  readonly configFile: string;
  /** Content of a new configFile. With `isConfigGiven` it also replaces an existing file. */
  readonly configText: string;
  readonly isConfigGiven: boolean;
  /** Environment file with the flags of the service. */
  readonly flagsFile: string;
  /** The flags that the service needs on this node, and neither has nor reads from its file. */
  readonly runtimeFlags: readonly string[];
  readonly kubeconfig: ProvidedKubeconfig;
  /** Maximum time until the shim becomes ready and kubelet is back. */
  readonly wait: Wait;
}

export const SERVICE = 'cri-resize-shim.service';
export const SOCKETS: readonly string[] = ['cri-resize-shim.socket', 'cri-resize-shim-resize.socket'];
/** The units that are enabled, and active while the shim is installed. */
export const UNITS: readonly string[] = [SERVICE, ...SOCKETS];

export const FALLBACK = 'cri-resize-shim-fallback.service';
export const BYPASS = 'cri-resize-shim-bypass.service';
export const TAKEOVER = 'cri-resize-shim-takeover.service';
/** The units that the others start. They are never enabled, and stop with the sockets. */
export const STARTED_UNITS: readonly string[] = [FALLBACK, TAKEOVER, BYPASS];
/** All unit files. */
export const UNIT_FILES: readonly string[] = [...UNITS, ...STARTED_UNITS, 'cri-resize-shim-waiting@.service'];

/** The endpoint of the shim, for kubelet. */
export const shimEndpoint = ({ node }: Site): string => `unix://${node.listen}`;

/** Paths and facts of a node, as input of the checks. */
export interface Node {
  /** Mount point of cgroup v2. */
  readonly cgroupRoot: string;
  /** containerd's socket: an absolute path. */
  readonly containerd: string;
  /** The socket on which the shim serves the CRI: an absolute path. */
  readonly listen: string;
  /** The socket of its resize API: an absolute path. */
  readonly resizeListen: string;
  /** Folder of the journal of the shim. */
  readonly stateFolder: string;
  /** Folder into which the program is installed. */
  readonly programFolder: string;
  /** Disk space that the program needs, in bytes. */
  readonly programSpace: number;
  /** Environment file with the flags of the service: /etc/default/cri-resize-shim. */
  readonly flagsFile: string;
  /** The configuration file that an installation uses: /etc/cri-resize-shim/config.yaml. */
  readonly configFile: string;
  /** The systemd unit of kubelet. */
  readonly kubeletUnit: string;
  /** Patterns of the files in which the endpoint of kubelet may be. */
  readonly kubeletFiles: readonly string[];
  /** Mount point of procfs. */
  readonly procRoot: string;
  /** Exists if systemd is the init system (sd_booted(3)). */
  readonly systemdFolder: string;
  /** systemd's socket proxy, the program of the bypass. */
  readonly proxyProgram: string;
  /** Kernel release: `6.1.0-18-amd64`. */
  readonly kernel: string;
  /** Node's version: `26.10.0`. */
  readonly nodeVersion: string;
  /** User id of the process; 0 is root. */
  readonly uid: number;
}
