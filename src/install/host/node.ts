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
