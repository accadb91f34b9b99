import type { Node } from './node.ts';
import type { Patience } from './waiting.ts';

/** A node, and what an installation puts where. */
export interface Site {
  readonly node: Node;
  /** The folder of the program that is to be installed: a checkout that is built, or what `npm run package` makes. */
  readonly from: string;
  /** `/usr/local/lib/cri-resize-shim` */
  readonly to: string;
  /** Node's program, which the units start. */
  readonly nodeProgram: string;
  /** As process.arch. */
  readonly arch: string;
  /** Where systemd looks for units of this machine. */
  readonly unitFolder: string;
  readonly configFile: string;
  /** What configFile is made of where there is none. */
  readonly configText: string;
  /** The flags that the service is started with. */
  readonly flagsFile: string;
  /** For the shim to be ready, and for kubelet to come back. */
  readonly patience: Patience;
}

export const SERVICE = 'cri-resize-shim.service';
export const SOCKETS: readonly string[] = ['cri-resize-shim.socket', 'cri-resize-shim-resize.socket'];
export const UNITS: readonly string[] = [SERVICE, ...SOCKETS];

/** The endpoint that kubelet is given. */
export const oursOf = ({ node }: Site): string => `unix://${node.listen}`;

/** The path of a socket, however it is written. */
export const socketOf = (endpoint: string): string => endpoint.replace(/^unix:(\/\/)?/, '');
