import type { Node } from './node.ts';
import type { Program } from './programs.ts';
import type { Patience } from './waiting.ts';

/** A node, and what an installation puts where. */
export interface Site {
  readonly node: Node;
  /** The program that is to be installed. */
  readonly program: Program;
  /** `/usr/local/lib/cri-resize-shim` */
  readonly to: string;
  /** Where an operator's shell finds resizectl: `/usr/local/bin/resizectl` */
  readonly commandFile: string;
  /** Where systemd looks for units of this machine. */
  readonly unitFolder: string;
  readonly configFile: string;
  /** What configFile is made of where there is none; `isConfigGiven`: also where there is another one. */
  readonly configText: string;
  readonly isConfigGiven: boolean;
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
