/** A node as the checks see it: where things are on it, and how to ask. */
export interface Node {
  /** Where cgroup v2 is mounted. */
  readonly cgroupRoot: string;
  /** containerd's socket: an absolute path. */
  readonly containerd: string;
  /** The socket on which the shim serves the CRI: an absolute path. */
  readonly listen: string;
  /** The socket of its resize API: an absolute path. */
  readonly resizeListen: string;
  /** Where the shim journals. */
  readonly stateFolder: string;
  /** Where the program goes. */
  readonly programFolder: string;
  /** How much room it needs there, in bytes. */
  readonly programRoom: number;
  /** systemd's unit of kubelet. */
  readonly kubeletUnit: string;
  /** Where the kernel tells of processes. */
  readonly procRoot: string;
  /** Is there when systemd runs this node (sd_booted(3)). */
  readonly systemdFolder: string;
  /** The kernel's release: `6.1.0-18-amd64`. */
  readonly kernel: string;
  /** Node's version: `26.10.0`. */
  readonly nodeVersion: string;
  /** Who runs the checks; 0 is root. */
  readonly uid: number;
}
