import type { ResizeClient } from '../client.ts';
import type { Output } from '../command-table.ts';
import type { NodeOptions } from './this-node.ts';

/** What every command works with. */
export interface Context {
  readonly client: ResizeClient;
  readonly output: Output;
  /** To stdout, as it is. */
  readonly print: (text: string) => void;
  /** Says on stderr what went wrong, and goes on. */
  readonly complain: (error: unknown) => void;
}

/** What the options of the command line may say. */
export type CommandOptions = ResizeOptions & NodeOptions & InstallOptions;

export interface InstallOptions {
  readonly dryRun?: boolean;
  /** A file with the shim's configuration. */
  readonly config?: string;
  readonly kubeletUnit?: string;
  readonly timeout?: string;
}

export interface ResizeOptions {
  readonly dryRun?: boolean;
  readonly defer?: boolean;
  readonly timeout?: string;
}
