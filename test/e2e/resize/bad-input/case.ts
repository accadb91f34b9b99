import type { BadInputNode } from './node.ts';

/** An invalid request. Either the shim rejects it, or the runtime answers it and the shim forwards that answer. */
export interface BadCase {
  readonly name: string;
  readonly call: 'UpdateContainerResources' | 'UpdatePodSandboxResources' | 'ResizePod';
  /** A Buffer is sent as it is. */
  readonly request: (node: BadInputNode) => object | Buffer;
  readonly answer: Refused | PassedOn;
  /** A runtime that implements the call (containerd 2.3 and later: UpdatePodSandboxResources) gives the answer. */
  readonly isForwardedIfImplemented?: boolean;
}

/** The shim's own answer. */
export interface Refused {
  readonly by: 'shim';
  readonly code: number;
  readonly reason: string;
  /** Texts that the message contains: the place and the value. */
  readonly says: readonly string[];
}

/** The runtime's answer, equal to its answer without a shim. Some requests succeed. */
export interface PassedOn {
  readonly by: 'runtime';
  /** The call that the shim makes to the runtime instead, if it is a different one. */
  readonly instead?: { readonly method: string; readonly request: (node: BadInputNode) => object };
}

export const INVALID_ARGUMENT = 3;
export const NOT_FOUND = 5;
export const FAILED_PRECONDITION = 9;

export const invalid = (...says: string[]): Refused => refused(INVALID_ARGUMENT, 'INVALID_VALUE', ...says);
export const refused = (code: number, reason: string, ...says: string[]): Refused => ({
  by: 'shim',
  code,
  reason,
  says,
});
export const passedOn: PassedOn = { by: 'runtime' };

/** The limits of int64, and a number that JavaScript cannot represent exactly, as strings. */
export const INT64 = { least: '-9223372036854775808', most: '9223372036854775807', inexact: '9007199254740993' };
