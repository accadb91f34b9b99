import type { Children } from '../children.ts';
import type { GoPrograms } from '../go/programs.ts';

export interface WorkOptions {
  readonly children: Children;
  /** Undefined without Go. */
  readonly programs: GoPrograms | undefined;
  /** Approximate duration, for work that is repeated. */
  readonly seconds: number;
  /** The folder for CPU profiles of the measured shims, if requested. */
  readonly profile?: string | undefined;
  readonly progress: (text: string) => void;
}
