import type { Children } from '../children.ts';

export interface WorkOptions {
  readonly children: Children;
  /** About how long to go on, where it is done again and again. */
  readonly seconds: number;
  /** Where CPU profiles of the measured shims go, if they are wanted. */
  readonly profile?: string | undefined;
  readonly progress: (text: string) => void;
}
