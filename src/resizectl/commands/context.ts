import type { ResizeClient } from '../client.ts';
import type { Output } from '../command-texts.ts';
import type { NodeOptions } from './this-node.ts';
import type { TopOptions } from './top.ts';

/** The dependencies of every command. */
export interface Context {
  readonly client: ResizeClient;
  readonly output: Output;
  /** Whether tables have more columns. */
  readonly isWide: boolean;
  /** The namespace of pods; undefined: all. */
  readonly namespace: string | undefined;
  /** Rows of the terminal; undefined if stdout is none. */
  readonly screenRows: () => number | undefined;
  /** Writes to stdout. */
  readonly print: (text: string) => void;
  /** Writes a line to stderr, such as a message about waiting. */
  readonly say: (line: string) => void;
  /** Writes an error to stderr. */
  readonly printError: (error: unknown) => void;
}

/** The options of all commands. */
export type CommandOptions = ResizeOptions & NodeOptions & InstallOptions & TopOptions & { readonly headers?: boolean };

export interface InstallOptions {
  readonly dryRun?: boolean;
  /** Path of a configuration file for the shim. */
  readonly config?: string;
  /** Path of a kubeconfig for the shim. */
  readonly kubeconfig?: string;
  readonly kubeletUnit?: string;
  readonly timeout?: string;
}

export interface ResizeOptions {
  readonly dryRun?: boolean;
  readonly defer?: boolean;
  readonly timeout?: string;
}
