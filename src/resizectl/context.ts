import type { ResizeClient } from './client.ts';
import type { Output } from './commands.ts';
import type { InstallOptions } from './install.ts';
import type { ResizeOptions } from './resize.ts';
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
