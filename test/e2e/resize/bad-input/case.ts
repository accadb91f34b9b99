import type { BadInputNode } from './node.ts';

/** A request that is to be refused: by the shim itself, or by the runtime, whose answer then comes through as it is. */
export interface BadCase {
  readonly name: string;
  readonly call: 'UpdateContainerResources' | 'UpdatePodSandboxResources' | 'ResizePod';
  /** Bytes go on the wire as they are. */
  readonly request: (node: BadInputNode) => object | Buffer;
  readonly answer: Refused | PassedOn;
}

/** The shim's own answer. */
export interface Refused {
  readonly by: 'shim';
  readonly code: number;
  readonly reason: string;
  /** What its message tells: the place and the value. */
  readonly says: readonly string[];
}

/** The runtime's, word for word as it answers without a shim. Some of them say yes. */
export interface PassedOn {
  readonly by: 'runtime';
  /** The call that the runtime is asked for it, where it is another one. */
  readonly instead?: { readonly method: string; readonly request: (node: BadInputNode) => object };
}

export const INVALID_ARGUMENT = 3;
export const NOT_FOUND = 5;
export const FAILED_PRECONDITION = 9;

export const invalid = (...says: string[]): Refused => refused(INVALID_ARGUMENT, 'INVALID_VALUE', ...says);
export const refused = (code: number, reason: string, ...says: string[]): Refused => ({
  ...{ by: 'shim', code, reason },
  says,
});
export const passedOn: PassedOn = { by: 'runtime' };

/** The ends of int64 and what JavaScript's numbers cannot tell, as texts. */
export const INT64 = { least: '-9223372036854775808', most: '9223372036854775807', inexact: '9007199254740993' };
