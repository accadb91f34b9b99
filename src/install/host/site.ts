import type { Node } from './node.ts';
import type { Program } from './programs.ts';
import type { Wait } from './waiting.ts';

/** A node, and the paths of an installation. */
export interface Site {
  readonly node: Node;
  /** The program to install. */
  readonly program: Program;
  /** `/usr/local/lib/cri-resize-shim` */
  readonly to: string;
  /** resizectl in PATH: `/usr/local/bin/resizectl` */
  readonly commandFile: string;
  /** The systemd unit folder: `/etc/systemd/system` */
  readonly unitFolder: string;
  readonly configFile: string;
  /** Content of a new configFile. With `isConfigGiven` it also replaces an existing file. */
  readonly configText: string;
  readonly isConfigGiven: boolean;
  /** Environment file with the flags of the service. */
  readonly flagsFile: string;
  /** How long to wait for the shim to become ready, and for kubelet to come back. */
  readonly wait: Wait;
}

export const SERVICE = 'cri-resize-shim.service';
export const SOCKETS: readonly string[] = ['cri-resize-shim.socket', 'cri-resize-shim-resize.socket'];
export const UNITS: readonly string[] = [SERVICE, ...SOCKETS];

/** The endpoint of the shim, for kubelet. */
export const shimEndpoint = ({ node }: Site): string => `unix://${node.listen}`;

/** The path in a socket address, with or without `unix://`. */
export const socketOf = (endpoint: string): string => endpoint.replace(/^unix:(\/\/)?/, '');
